import Glibc
import GrantStore
import GrantSystem

/// How `mount` comes to return while its daemon goes on: the daemon is a child with a session of its own, and says through a
/// pipe that its mount answers. What goes wrong before that it says on stderr itself.
enum BackgroundStart {
    private static let word: [UInt8] = Array("ok".utf8)

    /// Starts this program again with these words. 0 once the mount answers, else the status the daemon ended with; `said`: what it has said besides (`announce`).
    static func run(words: [[UInt8]]) throws(Errno) -> Int32 { try start(words: words).status }

    static func start(words: [[UInt8]]) throws(Errno) -> (status: Int32, said: [UInt8]) {
        let pipe = try PipePair()
        let child = try spawn(words, ["--ready-fd=3"], [pipe.writing.number])
        return try outcome(of: child, pipe)
    }

    /// A daemon that is started before there is anything for it to mount, so that its start takes no time afterwards. It touches nothing until `go`, and ends by
    /// itself, in silence, when there is nobody any more who could say that; this value waits for it then.
    final class Waiting {
        let words: [[UInt8]]
        private let child: Int32
        private var ready: (reading: Int32, writing: Int32)?
        /// The daemon has the other end for as long as it lives.
        private let socket: UnixSocket

        /// `words`: as for `run`.
        init(words: [[UInt8]]) throws(Errno) {
            self.words = words
            let ready = try PipePair()
            let pair = try UnixSocket.pair()
            child = try spawn(words, ["--ready-fd=3", "--go-fd=4"], [ready.writing.number, pair.other.number])
            socket = pair.closeOther()
            self.ready = ready.release()
        }

        /// Has it mount. As `run`.
        func go() throws(Errno) -> Int32 {
            guard let ready else { throw Errno(EINVAL) }
            self.ready = nil
            close(ready.writing)
            // One that has ended says so by what it does not say.
            _ = send(socket.number, BackgroundStart.word, BackgroundStart.word.count, Int32(truncatingIfNeeded: MSG_NOSIGNAL))
            let status = try outcome(of: child, said: answer(on: FileDescriptor(owning: ready.reading))).status
            isServing = status == 0
            return status
        }

        private var isServing = false

        /// Whether it, and nobody else, has these mounts.
        func serves(_ mounts: [MountRecord]) -> Bool { isServing && mounts.allSatisfy { $0.pid == child } }

        /// Waits until the daemon's process has given up what it had but for what the kernel takes long to close, or for so many nanoseconds.
        func awaitEnd(within time: Int64) {
            var set = PollSet()
            set.add(socket.number)
            // It never writes: what there is to be read is the end.
            _ = try? set.wait(until: Clock.monotonic + time)
        }

        deinit {
            guard let ready else { return }
            close(ready.reading)
            close(ready.writing)
            shutdown(socket.number, Int32(SHUT_RDWR))
            _ = try? ChildProcess.wait(child)
        }
    }

    /// In the daemon: waits until there is something to be mounted. False when there never will be. It stays open under another number: by its end
    /// the starter knows this process's. What a process that ends has open the kernel gives back from the highest number on (task_work_run), so this comes before what takes it long.
    static func mayGo(_ descriptor: Int32) -> Bool {
        var said = [UInt8](repeating: 0, count: word.count)
        let last = fcntl(descriptor, F_DUPFD_CLOEXEC, 900)
        if last >= 0 { close(descriptor) } else { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        let descriptor = last >= 0 ? last : descriptor
        while true {
            var set = PollSet()
            set.add(descriptor)
            guard (try? set.wait(until: nil)) == true else { return false }
            let count = read(descriptor, &said, said.count)
            if count >= 0 || (errno != EINTR && errno != EAGAIN) { return said == word }
        }
    }

    private static func spawn(_ words: [[UInt8]], _ added: [String], _ descriptors: [Int32]) throws(Errno) -> Int32 {
        // The runtime's backtracer, started by a crash with several threads, can hang and keep the mount from dying.
        setenv("SWIFT_BACKTRACE", "enable=no", 0)
        // Before the command's own words: there a `--` cannot hide them.
        let added = (added + ["--foreground"]).map { Array($0.utf8) }
        return try ChildProcess.spawn(
            "/proc/self/exe", arguments: [words.first ?? Array("grantfs".utf8)] + added + words.dropFirst(), detached: true,
            descriptors: descriptors)
    }

    private static func outcome(of child: Int32, _ pipe: consuming PipePair) throws(Errno) -> (status: Int32, said: [UInt8]) {
        try outcome(of: child, said: answer(on: pipe.closeWriting()))
    }

    private static func outcome(of child: Int32, said: [UInt8]) throws(Errno) -> (status: Int32, said: [UInt8]) {
        if said.starts(with: word) { return (0, Array(said.dropFirst(word.count))) }
        let status = try ChildProcess.wait(child)
        if status > 128 { Terminal.note("the daemon ended before its mount answered: signal \(status - 128)") }
        return (status == 0 ? 1 : status, [])
    }

    /// All that comes until the other end is closed.
    private static func answer(on reading: consuming FileDescriptor) throws(Errno) -> [UInt8] {
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
