import Glibc
import LinuxFS

/// How `mount` comes to return while its daemon goes on: the daemon is a child with a session of its own, and says through a
/// pipe that its mount answers. What goes wrong before that it says on stderr itself.
enum BackgroundStart {
    private static let word: [UInt8] = Array("ok".utf8)

    /// Starts this program again with these words. 0 once the mount answers, else the status the daemon ended with; `said`: what it has said besides (`announce`).
    static func run(words: [[UInt8]]) throws(Errno) -> Int32 { try start(words: words).status }

    static func start(words: [[UInt8]]) throws(Errno) -> (status: Int32, said: [UInt8]) {
        let pipe = try PipePair()
        // The runtime's backtracer, started by a crash with several threads, can hang and keep the mount from dying.
        setenv("SWIFT_BACKTRACE", "enable=no", 0)
        // Before the command's own words: there a `--` cannot hide them.
        let added = ["--ready-fd=3", "--foreground"].map { Array($0.utf8) }
        let child = try ChildProcess.spawn(
            "/proc/self/exe", arguments: [words.first ?? Array("grantfs".utf8)] + added + words.dropFirst(), detached: true,
            descriptors: [pipe.writing.number])
        let said = try answer(of: pipe)
        if said.starts(with: word) { return (0, Array(said.dropFirst(word.count))) }
        let status = try ChildProcess.wait(child)
        if status > 128 { Terminal.note("the daemon ended before its mount answered: signal \(status - 128)") }
        return (status == 0 ? 1 : status, [])
    }

    /// All that comes until the other end is closed.
    private static func answer(of pipe: consuming PipePair) throws(Errno) -> [UInt8] {
        let reading = pipe.closeWriting()
        var said: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 64)
        while said.count < 4096 {
            let count = read(reading.number, &buffer, buffer.count)
            if count == 0 { break }
            if count < 0 {
                if errno == EINTR { continue }
                throw Errno(errno)
            }
            said += buffer[..<count]
        }
        return said
    }

    /// In the daemon, once every relative path has been read: it keeps no directory of its starter busy.
    static func settle() {
        // Started as /proc/self/exe, it would be called “exe” in the log and in ps.
        ProcessName.set("grantfs")
        _ = chdir("/")
    }

    /// In the daemon: nobody's pipe stays open for its sake.
    static func silence() {
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        if null >= 0 {
            dup2(null, Terminal.standardError)
            close(null)
        }
    }

    /// In the daemon: its mount answers. From here on nobody reads what it says. `more`: for whoever has started it.
    static func announce(on descriptor: Int32, _ more: [UInt8] = []) {
        silence()
        // SIGPIPE would end a daemon whose starter was killed; it is then as good as started.
        let before = signal(SIGPIPE, SIG_IGN)
        _ = write(descriptor, word + more, word.count + more.count)
        signal(SIGPIPE, before)
        close(descriptor)
    }
}
