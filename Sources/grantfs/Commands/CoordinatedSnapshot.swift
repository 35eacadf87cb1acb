import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// What `grantfs coordinate read --snapshot` does once it has the claim.
enum CoordinatedSnapshot {
    /// Copies what is claimed, ends the claim, and runs the command on the copies; without one it says where they are. The command's exit status.
    static func make(
        _ claim: Claim, in directory: [UInt8], then command: [[UInt8]], _ progress: ProgressOutput, isJSON: Bool
    ) throws(GrantError) -> Int32 {
        let signals = BlockedSignals([SIGINT, SIGTERM, SIGHUP])
        let made: Snapshot.Made
        do throws(GrantError) {
            made = try claim.snapshot(in: directory, progress: { progress.show($0) }) { () throws(GrantError) in
                if signals.hasCome { throw GrantError(.system, "the snapshot was interrupted", cause: "nothing of it is left") }
            }
        } catch {
            progress.end()
            // By the signal, as anybody would who does not clean up first.
            signals.deliver()
            throw error
        }
        signals.deliver()
        progress.note("copied")
        if command.isEmpty {
            try show(made, directory, isJSON: isJSON)
            return 0
        }
        CoordinatedChild.tell(made.paths)
        return try CoordinatedChild.run(command, holding: claim, endsWhenLost: false)
    }

    private static func show(_ made: Snapshot.Made, _ directory: [UInt8], isJSON: Bool) throws(GrantError) {
        guard isJSON else {
            for path in made.paths { try Terminal.print(Terminal.visible(path)) }
            return
        }
        try Terminal.print(
            JSON.object(
                JSON.members("directory", directory) + [
                    ("copies", .array(made.paths.map { .object(JSON.members("path", $0)) })), ("files", .unsigned(made.files)),
                    ("bytes", .unsigned(made.bytes)),
                ]
            ).text)
    }
}

/// Signals that are held back while something is under way that has to be cleaned up. For a program of one thread.
private final class BlockedSignals {
    private var set = sigset_t()
    private var before = sigset_t()
    private var came: Int32?

    init(_ numbers: [Int32]) {
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        pthread_sigmask(SIG_BLOCK, &set, &before)
    }

    /// Whether one has come.
    var hasCome: Bool {
        var none = timespec()
        let number = sigtimedwait(&set, nil, &none)
        if number > 0, came == nil { came = number }
        return came != nil
    }

    /// Lets them through again, first what has come.
    func deliver() {
        if let came { raise(came) }
        pthread_sigmask(SIG_SETMASK, &before, nil)
    }
}
