import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// Runs the commands of `grantfs present`. Questions and notices have a queue each, so that no answer waits for the command of a
/// notice.
///
/// Locking: each queue's own, and `path`, for a moment.
final class PresentHooks: Sendable {
    private let commands: [String: [UInt8]]
    private let isJSON: Bool
    private let environment: [[UInt8]]
    private let path = Lock<[UInt8]>([])
    private let (questions, notices): (CommandQueue, CommandQueue)

    init(_ arguments: ParsedArguments) throws(GrantError) {
        var commands: [String: [UInt8]] = [:]
        for name in ["relinquish", "save", "delete", "revoke", "reacquire", "change", "release"] {
            commands[name] = arguments.bytes("on-" + name)
        }
        self.commands = commands
        isJSON = arguments.wantsJSON
        var (variables, next) = ([[UInt8]](), environ)
        while let variable = next.pointee {
            variables.append(Array(UnsafeRawBufferPointer(start: variable, count: strlen(variable))))
            next += 1
        }
        environment = variables
        do throws(Errno) {
            (questions, notices) = (try CommandQueue("ask"), try CommandQueue("tell"))
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
    }

    /// The presenter is registered.
    func begin(_ path: [UInt8]) {
        self.path.withLock { $0 = path }
        say(PresentEvent("presenting", item: path))
    }

    func handle(_ request: PresenterRequest) {
        let (event, hook) = PresentEvent.of(request)
        say(event)
        guard let command = commands[hook] else { return request.answer() }
        let words = self.words(command, event)
        let ended = GrantSystem.Semaphore()
        warn(hook, after: request.seconds, unless: ended)
        questions.add { [self] in
            let status = run(words)
            ended.post()
            request.answer(status == 0)
            if status != 0 { Terminal.note("--on-\(hook): the command failed with \(status)") }
        }
    }

    /// Prints that a command is no longer waited for, once its time is over.
    private func warn(_ hook: String, after seconds: Double, unless ended: GrantSystem.Semaphore) {
        let deadline = Clock.deadline(seconds: seconds)
        // Without a thread nothing is printed.
        try? WorkerThread.start("present-clock") {
            if ended.wait(until: deadline) { return }
            Terminal.note(
                "--on-\(hook): not done within \(seconds) s, so this presenter was passed over (--timeout, 60 at the most, gives the command longer)"
            )
        }.detach()
    }

    func handle(_ notice: PresenterNotice) {
        if case .moved(let place) = notice { path.withLock { $0 = place } }
        let (event, hook) = PresentEvent.of(notice, path.withLock { $0 })
        say(event)
        guard let hook, let command = commands[hook] else { return }
        let words = self.words(command, event)
        notices.add { [self] in
            let status = run(words)
            if status != 0 { Terminal.note("--on-\(hook): the command failed with \(status)") }
        }
    }

    // MARK: commands

    private func words(_ command: [UInt8], _ event: PresentEvent) -> (arguments: [[UInt8]], environment: [[UInt8]]) {
        // The command's output is not JSON.
        let script = isJSON ? Array("exec 1>&2\n".utf8) + command : command
        let own = event.variables(path: path.withLock { $0 })
        return ([Array("sh".utf8), Array("-c".utf8), script], environment + own)
    }

    private func run(_ words: (arguments: [[UInt8]], environment: [[UInt8]])) -> Int32 {
        do throws(Errno) {
            return try ChildProcess.wait(
                try ChildProcess.spawn("/bin/sh", arguments: words.arguments, environment: words.environment))
        } catch {
            Terminal.note("/bin/sh cannot be run: \(error)")
            return 127
        }
    }

    private func say(_ event: PresentEvent) {
        do throws(GrantError) {
            try Terminal.print(isJSON ? JSON.object(event.json).text : event.line)
        } catch {
            // The output has no reader any more.
            Terminal.report(error)
            exit(error.exitStatus)
        }
    }
}

/// Runs work items in sequence on a thread of its own.
private final class CommandQueue: Sendable {
    private let waiting = Lock<[@Sendable () -> Void]>([])
    private let added = Semaphore()

    init(_ name: String) throws(Errno) {
        let (waiting, added) = (waiting, added)
        try WorkerThread.start("present-" + name) {
            while true {
                added.wait()
                waiting.withLock { $0.isEmpty ? nil : $0.removeFirst() }?()
            }
        }.detach()
    }

    func add(_ body: @escaping @Sendable () -> Void) {
        waiting.withLock { $0.append(body) }
        added.post()
    }
}
