import Glibc
import GrantMounts
import GrantStore
import GrantSystem

/// Starts a daemon in the background and waits until its mount answers. The daemon is a child with its own session, which reports success
/// through a pipe and errors on standard error. `program` is `CompanionProgram.file`, or a daemon's own executable.
package enum BackgroundStart {
    /// The report that the mount answers.
    package static let word: [UInt8] = Array("ok".utf8)
    /// The report that the mount exists.
    package static let attachedMark = UInt8(ascii: "m")
    /// The variable with the command line for which a daemon is started. It is not among the daemon's words, which every user can read, and
    /// by which programs are found.
    package static let commandVariable = "GRANTFS_RUN_COMMAND"

    /// Starts the program with these words. Returns 0 once the mount answers, else the daemon's exit status. `said`: the additional
    /// bytes of `announce`.
    package static func run(_ program: ProgramFile, words: [[UInt8]], for command: String? = nil) throws(Errno) -> Int32 {
        try start(program, words: words, for: command).status
    }

    /// `errors`: where the daemon reports errors, instead of standard error. `started` gets the daemon's process, which a caller that goes
    /// on has to reap if the result is 0.
    package static func start(
        _ program: ProgramFile, words: [[UInt8]], for command: String? = nil, errors: Int32? = nil,
        started: (Int32) -> Void = { _ in }
    ) throws(Errno) -> (status: Int32, said: [UInt8]) {
        let pipe = try PipePair()
        let child = try spawn(program, words, for: command, ["--ready-fd=3"], [pipe.writing.number], errors: errors)
        let outcome = try outcome(of: child, pipe)
        if outcome.status == 0 { started(child) }
        return outcome
    }

    /// A daemon that is started in advance, so that its start takes no time later. Until `go` it looks at directories for its starter, and ends
    /// silently if that ends before. When this value is freed before `go`, it waits for the daemon's end, unless a directory hangs.
    package final class Waiting {
        package let words: [[UInt8]]
        private let program: ProgramFile
        private let child: Int32
        private var ready: (reading: Int32, writing: Int32)?
        /// The daemon has the other end open as long as it lives.
        private let socket: UnixSocket
        private let looks: StandingProbe

        /// `words`: as for `run`.
        package init(_ program: ProgramFile, words: [[UInt8]], for command: String) throws(Errno) {
            self.words = words
            self.program = program
            let ready = try PipePair()
            let pair = try UnixSocket.pair()
            let looks = try UnixSocket.pair()
            // Of standard error it gets to know with `go`: a directory that hangs may hold it up before, and a reader of the starter's must not
            // wait for that.
            child = try spawn(
                program, words, for: command, ["--ready-fd=3", "--go-fd=4", "--look-fd=5"],
                [ready.writing.number, pair.other.number, looks.other.number], silent: true)
            socket = pair.closeOther()
            self.looks = StandingProbe(looks.closeOther(), pid: child)
            self.ready = ready.release()
        }

        /// Makes the daemon look at directories.
        package var probe: DirectoryProbe { .standing(looks, program: program, arguments: DirectoryProbe.lookArguments) }

        /// Makes the daemon mount. Returns the same as `run`. `attached` is called when the mount
        /// exists. Requests to it are answered once it is served.
        package func go(attached: () -> Void) throws(Errno) -> Int32 {
            guard let ready, looks.end() else { throw Errno(EINVAL) }
            self.ready = nil
            close(ready.writing)
            let reading = FileDescriptor(owning: ready.reading)
            // If it has ended, the missing answer tells so below.
            try? socket.send(descriptors: [Terminal.standardError], deadline: Clock.monotonic + 10_000_000_000)
            let status = try outcome(of: child, said: answer(on: reading, attached)).status
            isServing = status == 0
            return status
        }

        private var isServing = false

        /// Whether all these mounts are served by this daemon.
        package func serves(_ mounts: [MountRecord]) -> Bool { isServing && mounts.allSatisfy { $0.pid == child } }

        /// Waits until the daemon's process is ending, up to `time` nanoseconds. The kernel may still be closing its other descriptors.
        package func awaitEnd(within time: Int64) {
            var set = PollSet()
            set.add(socket.number)
            // The daemon never writes to it, so it becomes readable at the daemon's end.
            _ = try? set.wait(until: Clock.monotonic + time)
        }

        deinit {
            guard let ready else { return }
            close(ready.reading)
            close(ready.writing)
            shutdown(socket.number, Int32(SHUT_RDWR))
            if looks.end() { _ = try? ChildProcess.wait(child) }
        }
    }

    private static func spawn(
        _ program: ProgramFile, _ words: [[UInt8]], for command: String?, _ added: [String], _ descriptors: [Int32], silent: Bool = false,
        errors: Int32? = nil
    ) throws(Errno) -> Int32 {
        // The runtime's backtracer, started by a crash with several threads, can hang and keep the mount from dying.
        setenv("SWIFT_BACKTRACE", "enable=no", 0)
        if let command { setenv(commandVariable, command, 1) }
        defer { if command != nil { unsetenv(commandVariable) } }
        // They come before the command's own words, because behind a `--` they would be operands.
        let added = (added + ["--foreground"]).map { Array($0.utf8) }
        return try ChildProcess.spawn(
            program, arguments: [words.first ?? Array("grantfs".utf8)] + added + words.dropFirst(), detached: true,
            silent: silent, errors: errors, descriptors: descriptors)
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

    /// Reads until the other end is closed. Calls `attached` as soon as that is reported, and
    /// removes the report.
    private static func answer(on reading: consuming FileDescriptor, _ attached: () -> Void = {}) throws(Errno) -> [UInt8] {
        var said: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 64)
        while said.count < 4096 {
            let count = read(reading.number, &buffer, buffer.count)
            if count == 0 { break }
            if count < 0 {
                if errno == EINTR { continue }
                throw Errno(errno)
            }
            if said.isEmpty, buffer[0] == attachedMark {
                said += buffer[1..<count]
                attached()
            } else {
                said += buffer[..<count]
            }
        }
        return said
    }
}
