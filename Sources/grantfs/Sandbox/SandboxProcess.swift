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

    /// Runs the command, hands on the signals that people and service managers send, and returns its exit status: 128 and the number
    /// of the signal where one ended it. To be called on the main thread.
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
            let leader = SandboxProcess.leader(said: pipe)
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
        } catch {
            throw GrantError(.system, "the sandbox cannot be started", cause: error.description)
        }
        if hasStarted || status == 0 { return status }
        throw GrantError(
            .system, "the sandbox cannot be made", cause: "bwrap ended with status \(status)",
            advice: "see the lines above; grantfs doctor says what is missing")
    }

    private static let handedOn = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH]

    /// The process at the head of the program's session: `{"child-pid": N}`, from bwrap. nil when it fails before.
    private static func leader(said pipe: consuming PipePair) -> Int32? {
        let reading = pipe.closeWriting()
        var said: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 256)
        while true {
            let count = read(reading.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count <= 0 { break }
            said += buffer[..<count]
        }
        let text = String(decoding: said, as: UTF8.self)
        guard let key = text.split(separator: "\"child-pid\":", maxSplits: 1).dropFirst().first else { return nil }
        return Int32(String(key.drop { $0 == " " }.prefix { $0.isNumber }))
    }
}
