import Foundation
import Glibc

/// The user that runs a program.
public struct Identity: Sendable, Equatable, CustomStringConvertible {
    public let uid: UInt32
    public let gid: UInt32

    public static let current = Identity(uid: geteuid(), gid: getegid())
    public static var isRoot: Bool { current.uid == 0 }

    /// The command prefix that makes this identity run a command, with no group but its own.
    var prefix: [String] {
        self == .current ? [] : ["setpriv", "--reuid=\(uid)", "--regid=\(gid)", "--clear-groups", "--"]
    }
    public var description: String { uid == 0 ? "root" : "user \(uid)" }
}

/// The facilities of this machine for tests with real mounts.
public enum Machine {
    public static let hasFUSE = access("/dev/fuse", F_OK) == 0
    public static let noFUSE = "there is no /dev/fuse here, so nothing can be mounted"
    public static let needsRoot = "needs root"
    public static let knowsVFAT = Processes.kernelText("/proc/filesystems").contains("vfat")
    /// Whether ext4 can find names by other spellings.
    /// Whether mounts can show other owners of the files below the directory for temporary files (Linux 6.2).
    public static let mapsOwners: Bool = {
        guard Identity.isRoot, Command.exists("python3") else { return false }
        let script = """
            import ctypes, os
            if tuple(int(number) for number in os.uname().release.split('.')[:2]) < (6, 2): raise SystemExit(1)
            libc, child = ctypes.CDLL(None), os.fork()
            if child == 0: libc.unshare(0x10000000); libc.pause()
            while os.stat(f'/proc/{child}/ns/user').st_ino == os.stat('/proc/self/ns/user').st_ino: os.sched_yield()
            for map in 'uid_map', 'gid_map':
                with open(f'/proc/{child}/{map}', 'w') as file: file.write('0 100000 1000')
            attributes = (ctypes.c_uint64 * 4)(0x100000, 0, 0, os.open(f'/proc/{child}/ns/user', os.O_RDONLY))
            tree = libc.syscall(428, -100, b'/tmp', 0x80001)
            result = libc.syscall(442, tree, b'', 0x1000, ctypes.byref(attributes), 32)
            os.kill(child, 9)
            raise SystemExit(result != 0)
            """
        return (try? Command.run(["python3", "-c", script]).status == 0) ?? false
    }()
    public static let foldsNames = access("/sys/fs/ext4/features/casefold", F_OK) == 0
    public static func needs(_ program: String) -> String { "\(program) is not installed" }

    /// Whether the machine has `program`. If GRANTFS_REQUIRE_PROGRAMS is 1, as in CI, a missing
    /// program is a failure.
    public static func offers(_ program: String) -> Bool {
        Command.exists(program) || ProcessInfo.processInfo.environment["GRANTFS_REQUIRE_PROGRAMS"] == "1"
    }

    /// A user without privileges: the user of the tests, or, for root, a user that is made for the
    /// tests and removed at their end.
    public static let plainUser: Identity? = Identity.isRoot ? TestUser.make("grantfs-test") : .current
    /// A user with no processes of other tests, for tests that count all processes of a user. nil
    /// unless root runs the tests.
    public static let loneUser: Identity? = Identity.isRoot ? TestUser.make("grantfs-alone") : nil
    /// A second user of that kind.
    public static let secondLoneUser: Identity? = Identity.isRoot ? TestUser.make("grantfs-alone2") : nil

    /// A user with rights that the other users must not have.
    public static let pollingUser: Identity? = Identity.isRoot ? TestUser.make("grantfs-poll") : nil

    /// Lets plain users mount while tests run, unless udev already does. On ordinary machines
    /// /dev/fuse is open to all users.
    public static let usersCanMount: Bool = {
        guard hasFUSE, Command.exists("fusermount3"), plainUser != nil else { return false }
        return Identity.isRoot ? DeviceMode.open() : access("/dev/fuse", R_OK | W_OK) == 0
    }()
    public static let usersCannotMount = "plain users cannot mount here: no fusermount3, or no access to /dev/fuse"

    /// Whether bubblewrap can make sandboxes here. If GRANTFS_REQUIRE_PROGRAMS is 1, it must.
    public static let hasSandboxes: Bool = {
        if ProcessInfo.processInfo.environment["GRANTFS_REQUIRE_PROGRAMS"] == "1" { return true }
        let words = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        return Command.exists("bwrap") && (try? Command.run(words, within: 10))?.status == 0
    }()

    /// Gives this process and its children the usual umask, so that other users can see the files that tests make for them.
    /// `StarterTests` tests grantfs under another umask.
    public static func takeUsualUmask() { _ = formerUmask }
    private static let formerUmask = umask(0o022)

    /// The version of the running kernel: 6 and 8 of `6.8.0-45-generic`.
    public static let kernel: (Int, Int) = {
        let numbers = Processes.kernelText("/proc/sys/kernel/osrelease").split(whereSeparator: { !$0.isNumber }).compactMap { Int($0) }
        return numbers.count >= 2 ? (numbers[0], numbers[1]) : (0, 0)
    }()

    /// Whether a refused read that fills pages of the cache fails with EIO. FUSE then reads by
    /// iomap, which loses the errno (docs/conformance.md).
    public static let losesErrorsOfReads = kernel >= (6, 19)
    /// The errors of a read of a file that was refused while it waited.
    public static let refusalsOfReads = losesErrorsOfReads ? ["EACCES", "EIO"] : ["EACCES"]

    /// Whether a filesystem that was unmounted differs from a later one with the same device
    /// number: by mount IDs, or by fusectl.
    public static let tellsFilesystemsApart = kernel >= (6, 8) || Processes.kernelText("/proc/self/mounts").contains(" fusectl ")

    public static let isUserModeLinux = Processes.kernelText("/proc/cpuinfo").contains("User Mode Linux")

    /// Whether the kernel drops requests, RELEASE among them, that a daemon reads while a SIGKILL is pending. User Mode
    /// Linux has no get_user_pages_fast (docs/decisions/succession.md, *Not done*).
    public static let losesRequestsOfTheDying = isUserModeLinux

    /// How many times slower this machine is than the machines that the time limits are made for, at least 1. `make
    /// test-kernels` measures it on an emulated kernel. Every time limit is multiplied by it.
    public static let slowness = max(1, ProcessInfo.processInfo.environment["GRANTFS_SLOWNESS"].flatMap { Double($0) } ?? 1)

    /// The time on the clock of `milliseconds` at which a wait of `seconds` ends.
    static func deadline(seconds: Double) -> Double { milliseconds + seconds * 1000 * slowness }

    /// Milliseconds since an arbitrary moment, by the monotonic clock. Its resolution does not
    /// matter here.
    public static var milliseconds: Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) * 1e3 + Double(time.tv_nsec) / 1e6
    }
}

/// Changes of the machine that last as long as any test process runs. Several processes may use
/// them at the same time, and the last one restores the original state. Each holds a shared lock on
/// a file that records the original state. A process that changes anything locks the directory of
/// that file, so that it does not wait for others to end.
private enum SharedSetup {
    nonisolated(unsafe) private static var descriptor: Int32 = -1
    private static let path = "/tmp/grantfs-tests.lock"

    private static func takingTurns(_ body: () -> Void) {
        let turn = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        flock(turn, LOCK_EX)
        body()
        close(turn)
    }

    /// Runs `change` alone. It receives the recorded state and returns the state to record.
    static func change(_ change: (_ noted: String) -> String) {
        takingTurns {
            if descriptor < 0 {
                descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
                guard descriptor >= 0 else { return }
                flock(descriptor, LOCK_SH)
                atexit { SharedSetup.putBack() }
            }
            let bytes = Array(change(contents).utf8)
            ftruncate(descriptor, 0)
            pwrite(descriptor, bytes, bytes.count, 0)
        }
    }

    private static var contents: String {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = pread(descriptor, &bytes, bytes.count, 0)
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
    }

    private static func putBack() {
        takingTurns {
            guard descriptor >= 0, flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { return }
            for line in contents.split(separator: "\n") {
                if let mode = line.split(separator: " ").last.flatMap({ mode_t($0, radix: 8) }), line.hasPrefix("mode ") {
                    chmod("/dev/fuse", mode)
                }
                if line.hasPrefix("user ") { _ = try? Command.run(["userdel", String(line.dropFirst(5))], within: 10) }
            }
            unlink(path)
        }
    }
}

private enum TestUser {
    static func make(_ name: String) -> Identity? {
        SharedSetup.change { noted in
            if getpwnam(name) != nil { return noted }
            let made = try? Command.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name])
            return made?.status == 0 ? noted + "user \(name)\n" : noted
        }
        guard let entry = getpwnam(name) else { return nil }
        return Identity(uid: entry.pointee.pw_uid, gid: entry.pointee.pw_gid)
    }
}

private enum DeviceMode {
    static func open() -> Bool {
        SharedSetup.change { noted in
            var status = stat()
            guard stat("/dev/fuse", &status) == 0, status.st_mode & 0o666 != 0o666 else { return noted }
            return chmod("/dev/fuse", 0o666) == 0 ? noted + "mode \(String(status.st_mode & 0o777, radix: 8))\n" : noted
        }
        var status = stat()
        return stat("/dev/fuse", &status) == 0 && status.st_mode & 0o666 == 0o666
    }
}
