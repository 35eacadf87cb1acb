import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// The snapshot of `grantfs coordinate read --snapshot`, once the claim is held.
enum CoordinatedSnapshot {
    /// Copies the claimed items, releases the claim, and runs the command on the copies. Without a
    /// command it prints their paths. Returns the command's exit status.
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
            // Ends by the signal, as a program without a handler would.
            signals.deliver()
            throw error
        }
        signals.deliver()
        progress.note("copied")
        if command.isEmpty {
            try show(made, directory, isJSON: isJSON)
            return 0
        }
        CoordinatedChild.export(made.paths)
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

/// Blocks signals while something is under way that needs cleaning up. For single-threaded programs.
private final class BlockedSignals {
    private var set = sigset_t()
    private var before = sigset_t()
    private var came: Int32?

    init(_ numbers: [Int32]) {
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        pthread_sigmask(SIG_BLOCK, &set, &before)
    }

    /// Whether one is pending.
    var hasCome: Bool {
        var none = timespec()
        let number = sigtimedwait(&set, nil, &none)
        if number > 0, came == nil { came = number }
        return came != nil
    }

    /// Unblocks them. A pending one is delivered first.
    func deliver() {
        if let came { raise(came) }
        pthread_sigmask(SIG_SETMASK, &before, nil)
    }
}
