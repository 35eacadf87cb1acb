import GrantCommandLine
import GrantConfinement
import Glibc
import GrantModel
import GrantSystem

/// A program in its sandbox, of which bwrap is the process here. It ends with this value, unless `run` was called.
final class SandboxProcess {
    /// The first descriptor number that bwrap's arguments refer to, after its own descriptors.
    static let firstHanded: Int32 = 7

    /// Throws `.unsupported`, with the package to install, if bubblewrap is missing.
    static func requireProgram() throws(GrantError) {
        _ = try bubblewrap()
    }

    /// Returns the path of bubblewrap. Throws as `requireProgram`.
    static func bubblewrap() throws(GrantError) -> String {
        if let path = ProgramSearch.bubblewrap { return path }
        throw GrantError(
            .unsupported, "no program can be run in a sandbox", cause: "there is no bwrap in PATH", advice: "install the package bubblewrap"
        )
    }

    /// A shell's exit statuses for a missing program, and for one that cannot be run.
    static let (notFound, notRunnable): (Int32, Int32) = (127, 126)

    /// Explains what programs a sandbox can find, if the given one was not.
    static func advise() {
        Terminal.note("in the sandbox there are the system's programs and what --grant, --ro-bind and --tool show")
    }

    private let child: Int32
    private let says: FileDescriptor
    private let barrier: SandboxBarrier
    let terminal: SandboxTerminal?
    private let sandbox: Sandbox
    private let program: [UInt8]
    private var hasEnded = false

    /// Starts bwrap, which makes the sandbox up to where it needs the view, if `Sandbox.canWait`.
    /// Otherwise the view must be served. Call it on the main thread.
    init(
        _ sandbox: Sandbox, command: [[UInt8]], _ system: Ahead<SystemFiles.Found>, _ proxy: SandboxProxy?,
        _ observer: LookupObserver? = nil
    ) throws(GrantError) {
        self.sandbox = sandbox
        program = command.first ?? []
        let bubblewrap = try SandboxProcess.bubblewrap()
        do throws(Errno) {
            let pipe = try PipePair()
            let filter = try SandboxFilter.file(hasNetwork: sandbox.hasNetwork)
            barrier = try SandboxBarrier()
            let found = system.value
            let handed = HandedDescriptors(first: SandboxProcess.firstHanded, found.files)
            let said = try sandbox.words(found, statusDescriptor: 3, filter: 5, barrier: 6, handed)
            let options = try MemoryFile.of(Array(said.joined(separator: [0])) + [0])
            terminal = try SandboxTerminal.ofCaller()
            let beginning = try BeginCommand.words(for: sandbox.layout.binds, terminal, proxy, observer, handed)
            let words = ["bwrap", "--args", "4", "--"].map { Array($0.utf8) } + beginning + command
            // The program can read bwrap's environment, so bwrap gets only the program's.
            let variables = sandbox.environment.map { Array($0.name.utf8) + [UInt8(ascii: "=")] + $0.value }
            let descriptors = [pipe.writing.number, options.number, filter.number, barrier.file.number] + handed.numbers
            child = try SandboxStarter.start(hasNetwork: sandbox.hasNetwork) { () throws(Errno) in
                // In a process group of its own: Ctrl-C is forwarded, and does not end bwrap, which would kill the program.
                try ChildProcess.spawn(
                    .path(bubblewrap), arguments: words, environment: variables, inGroup: true, descriptors: descriptors)
            }
            says = pipe.closeWriting()
            handed.close()
        } catch {
            throw SandboxProcess.failure(error)
        }
    }

    deinit {
        if hasEnded { return }
        kill(child, SIGKILL)
        _ = try? ChildProcess.wait(child)
    }

    private static func failure(_ error: Errno) -> GrantError {
        GrantError(.system, "the sandbox cannot be started", cause: error.description)
    }

    /// Begins the command, forwards the signals of people and service managers, and returns its
    /// exit status: 128 plus the number of a signal that ended it. The status is `notFound` or
    /// `notRunnable` if it could not be started. Call it on the main thread.
    func run() throws(GrantError) -> Int32 {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGCHLD] + SandboxProcess.handedOn { sigaddset(&signals, number) }
        var before = sigset_t()
        pthread_sigmask(SIG_BLOCK, &signals, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        barrier.release()
        let status: Int32
        let hasStarted: Bool
        let hasBegun: Bool
        do throws(Errno) {
            let leader = SandboxProcess.leader(saidBy: says)
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
                // With a terminal of its own the program also has its own session and process groups.
                if let group = terminal?.group { kill(-group, number) }
                if let leader, kill(-leader, number) == 0 {
                    // Continues the first process, which has to see the others end, even if another
                    // process stopped it.
                    kill(leader, SIGCONT)
                } else if number != SIGWINCH {
                    // Before the program has a session there is only bwrap.
                    kill(child, SIGKILL)
                }
            }
            status = try ChildProcess.wait(child)
            hasEnded = true
            hasStarted = leader != nil
            hasBegun = SandboxProcess.hasBegun(saidBy: says)
        } catch {
            throw SandboxProcess.failure(error)
        }
        // bwrap has printed why.
        if hasStarted, status == 1, !hasBegun {
            if sandbox.shows(program: program) { return SandboxProcess.notRunnable }
            SandboxProcess.advise()
            return SandboxProcess.notFound
        }
        if hasStarted || status == 0 { return status }
        throw GrantError(
            .system, "the sandbox cannot be made", cause: "bwrap ended with status \(status)",
            advice: "see the lines above, and grantfs doctor")
    }

    private static let handedOn = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH]

    /// Returns the leader of the program's session, from the first line of bwrap's status:
    /// `{"child-pid": N …}`. Returns nil if bwrap fails before.
    private static func leader(saidBy reading: borrowing FileDescriptor) -> Int32? {
        var said: [UInt8] = []
        var byte: UInt8 = 0
        while byte != UInt8(ascii: "\n"), let next = next(of: reading) {
            byte = next
            said.append(byte)
        }
        let text = String(decoding: said, as: UTF8.self)
        guard let key = text.utf8.place(ofPart: "\"child-pid\":".utf8) else { return nil }
        return Int32(String(text[key.upperBound...].drop { $0 == " " }.prefix { $0.isNumber }))
    }

    /// Whether the program was started, once bwrap has ended: bwrap reports the program's exit status, and nothing if it could not be
    /// executed (bwrap(1), --json-status-fd).
    private static func hasBegun(saidBy reading: borrowing FileDescriptor) -> Bool {
        var said: [UInt8] = []
        while said.count < 4096, let next = next(of: reading) { said.append(next) }
        return String(decoding: said, as: UTF8.self).contains(part: "\"exit-code\"")
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
