// Gives up what a daemon does, then tries calls and says what each gives: `name errno`, a line each.
import GrantConfinement
import Glibc
import GrantSystem

/// A function of the C library that Swift does not see, with small numbers in place of its arguments.
func call(_ name: String, _ argument: Int) -> Int {
    typealias Function = @convention(c) (Int, Int, Int, Int, Int, Int) -> Int32
    let function = unsafeBitCast(dlsym(nil, name), to: Function.self)
    return Int(function(argument, 0, 0, 0, 0, 0))
}

func say(_ name: String, _ result: Int) { print(name, result < 0 ? errno : 0) }

try Capabilities.keep(Capabilities.ofDaemon)
try SystemCallFilter.install()

say("open", Int(open("/proc/self/status", O_RDONLY)))
say("socket-unix", Int(socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)))
say("socket-inet", Int(socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)))
say("socket-netlink", Int(socket(AF_NETLINK, Int32(SOCK_RAW.rawValue), 0)))
say("unshare-fs", call("unshare", 0x200))
say("unshare-mounts", call("unshare", 0x0002_0000))
say("unshare-users", call("unshare", 0x1000_0000))
say("umount", Int(umount2("/nonexistent", 0)))
say("mount", Int(mount("none", "/nonexistent", "tmpfs", 0, nil)))
for name in ["setuid", "chroot", "sethostname", "acct", "swapoff", "setns", "ptrace", "personality", "fork"] { say(name, call(name, 0)) }

var process: pid_t = 0
var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("true"), nil]
let spawned = posix_spawn(&process, "/bin/true", nil, nil, &arguments, nil)
print("spawn", spawned)
let done = Semaphore()
let thread = try WorkerThread.start("confined") { done.post() }
thread.join()
print("thread 0")
var text = [UInt8](repeating: 0, count: 8192)
let status = open("/proc/thread-self/status", O_RDONLY)
let count = read(status, &text, text.count)
print(String(decoding: text.prefix(max(0, count)), as: UTF8.self))
