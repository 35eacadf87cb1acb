import GrantConfinement
import Glibc
import GrantModel
import GrantSystem

/// A program in its sandbox, from start to end.
enum SandboxProcess {
    static let program = "bwrap"
    /// The first number of what the words for bwrap speak of, behind its own descriptors.
    static let firstHanded: Int32 = 7

    /// `.unsupported`, with the package to install, when there is no bubblewrap.
    static func requireProgram() throws(GrantError) {
        if ProgramSearch.path(of: program) != nil { return }
        throw GrantError(
            .unsupported, "no program can be run in a sandbox", cause: "there is no bwrap in PATH", advice: "install the package bubblewrap"
        )
    }

    /// What a shell gives for a program that is not there, and for one that cannot be run.
    static let (notFound, notRunnable): (Int32, Int32) = (127, 126)

    /// Says what a program in a sandbox finds, to whoever named one that it does not.
    static func advise() {
        Terminal.note("in the sandbox there are the system's programs and what --grant, --ro-bind and --tool show")
    }

    /// Runs the command, hands on the signals that people and service managers send, and returns its exit status: 128 and the number
    /// of the signal where one ended it; `notFound` where it could not be begun. To be called on the main thread.
    static func run(
        _ sandbox: Sandbox, command: [[UInt8]], _ system: Ahead<SystemFiles.Found>, _ proxy: SandboxProxy?
    ) throws(GrantError) -> Int32 {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGCHLD] + handedOn { sigaddset(&signals, number) }
        var before = sigset_t()
        pthread_sigmask(SIG_BLOCK, &signals, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        let status: Int32
        let hasStarted: Bool
        let hasBegun: Bool
        do throws(Errno) {
            let pipe = try PipePair()
            let filter = try SandboxFilter.file()
            let empty = try MemoryFile.of([])
            let found = system.value
            let handed = HandedDescriptors(first: firstHanded, found.files)
            let said = try sandbox.words(found, statusDescriptor: 3, filter: 5, empty: 6, handed)
            let options = try MemoryFile.of(Array(said.joined(separator: [0])) + [0])
            let terminal = SandboxTerminal()
            let beginning = try BeginCommand.words(for: sandbox.layout.binds, terminal, proxy, handed)
            let words = ["bwrap", "--args", "4", "--"].map { Array($0.utf8) } + beginning + command
            // The program may read bwrap's variables, so bwrap has no others than the program.
            let variables = sandbox.environment.map { Array($0.name.utf8) + [UInt8(ascii: "=")] + $0.value }
            let descriptors = [pipe.writing.number, options.number, filter.number, empty.number] + handed.numbers
            let child = try SandboxStarter.start(hasNetwork: sandbox.hasNetwork) { () throws(Errno) in
                // In a group of its own: a Ctrl-C is handed on, and does not end bwrap, which would kill the program.
                try ChildProcess.spawn(program, arguments: words, environment: variables, inGroup: true, descriptors: descriptors)
            }
            let says = pipe.closeWriting()
            let leader = SandboxProcess.leader(saidBy: says)
            handed.close()
            terminal?.begin()
            defer { terminal?.end() }
            while try !ChildProcess.hasEnded(child) {
                var info = siginfo_t()
                let number = sigwaitinfo(&signals, &info)
                guard number > 0, number != SIGCHLD else { continue }
                if number == SIGWINCH, let terminal {
                    terminal.resize()
                    continue
                }
                // In a terminal of its own the program has a session of its own too, and groups as it likes.
                if let group = terminal?.group { kill(-group, number) }
                if let leader, kill(-leader, number) == 0 {
                    // Whatever has stopped the first process, it has to see the others end.
                    kill(leader, SIGCONT)
                } else if number != SIGWINCH {
                    // Before the program has its session there is nobody but bwrap.
                    kill(child, SIGKILL)
                }
            }
            (status, hasStarted) = (try ChildProcess.wait(child), leader != nil)
            hasBegun = SandboxProcess.hasBegun(saidBy: says)
        } catch {
            throw GrantError(.system, "the sandbox cannot be started", cause: error.description)
        }
        // bwrap has said why.
        if hasStarted, status == 1, !hasBegun {
            advise()
            return notFound
        }
        if hasStarted || status == 0 { return status }
        throw GrantError(
            .system, "the sandbox cannot be made", cause: "bwrap ended with status \(status)",
            advice: "see the lines above; grantfs doctor says what is missing")
    }

    private static let handedOn = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH]

    /// The process at the head of the program's session: `{"child-pid": N …}`, the first line of what bwrap says of itself. nil when it fails before.
    private static func leader(saidBy reading: borrowing FileDescriptor) -> Int32? {
        var said: [UInt8] = []
        var byte: UInt8 = 0
        while byte != UInt8(ascii: "\n"), let next = next(of: reading) {
            byte = next
            said.append(byte)
        }
        let text = String(decoding: said, as: UTF8.self)
        guard let key = text.split(separator: "\"child-pid\":", maxSplits: 1).dropFirst().first else { return nil }
        return Int32(String(key.drop { $0 == " " }.prefix { $0.isNumber }))
    }

    /// Whether bwrap, which has ended, had the program begin: it says with which status that has ended, and nothing when it could not be executed (bwrap(1), --json-status-fd).
    private static func hasBegun(saidBy reading: borrowing FileDescriptor) -> Bool {
        var said: [UInt8] = []
        while said.count < 4096, let next = next(of: reading) { said.append(next) }
        return String(decoding: said, as: UTF8.self).contains("\"exit-code\"")
    }

    private static func next(of reading: borrowing FileDescriptor) -> UInt8? {
        var byte: UInt8 = 0
        while true {
            let count = read(reading.number, &byte, 1)
            if count < 0, errno == EINTR { continue }
            return count == 1 ? byte : nil
        }
    }
}
