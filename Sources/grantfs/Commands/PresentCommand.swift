import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantSystem

/// `grantfs present`
enum PresentCommand {
    static let declaration = CommandDeclaration(
        "present", "Presents a file or directory, for commands: they make way for claims, save, and hear what becomes of it.",
        operands: [OperandDeclaration("PATH")],
        options: [
            CommonOptions.view,
            hook("relinquish", "before another process reads or writes there: make way"),
            hook("save", "before another process reads unsaved data, or the grant is revoked with --grace: save"),
            hook("delete", "before it, or something below it, is deleted: close it"),
            hook("revoke", "before the grant is revoked with --grace"),
            hook("reacquire", "when everything that it made way for has ended"),
            hook("change", "when it, or something below it, has changed or moved, or may have: see $GRANTFS_EVENT"),
            hook("release", "when no grant leads there any more"),
            OptionDeclaration(
                "timeout", value: "S", help: "seconds for a command to answer, 60 at the most (default: 5)"),
            OptionDeclaration("json", help: "every question and every notice as an object on a line"),
        ],
        notes: [
            "PATH is as for coordinate. It runs until it is interrupted, and says what it hears.",
            "Each CMD is run by /bin/sh, one after the other, with $GRANTFS_EVENT, $GRANTFS_PATH (where the item is on "
                + "the host), $GRANTFS_ITEM (the subject of the event: the item, something below it, or a directory "
                + "above it), $GRANTFS_NEW_PATH, $GRANTFS_PID and $GRANTFS_SECONDS, as far as they have one. A request "
                + "is answered when the command has ended. A command that takes longer than --timeout runs on, and "
                + "the claimant no longer waits for it.",
            "Claims that the commands make with grantfs coordinate precede the claim in question.",
        ],
        run: run)

    private static func hook(_ event: String, _ help: String) -> OptionDeclaration {
        OptionDeclaration("on-" + event, value: "CMD", help: help)
    }

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.seconds("timeout")
        if let timeout, timeout <= 0 || timeout > 60 {
            throw GrantError(.usage, "--timeout has to be more than 0 and 60 at the most")
        }
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let coordination = FileCoordination(administrator)
        let path = try CoordinatedPlace.of(arguments.operands[0], administrator, coordination, view: try arguments.view())
        let claimant = getenv("GRANTFS_CLAIMANT").flatMap { Claimant(String(cString: $0)) } ?? Claimant()
        setenv("GRANTFS_CLAIMANT", claimant.description, 1)
        let hooks = try PresentHooks(arguments)
        let presentation: Presentation
        do throws(CoordinationError) {
            presentation = try Presentation(
                path, in: coordination, purpose: claimant.description, timeout: timeout, onRequest: { hooks.handle($0) },
                onNotice: { hooks.handle($0) })
        } catch {
            throw error.grantError
        }
        hooks.begin(presentation.path)
        // Retained: its last use is above, and this function never returns, so the optimiser could end it here.
        _ = Unmanaged.passRetained(presentation)
        // A signal ends this process. The daemon notices that, and no claim waits for it.
        while true { pause() }
    }
}
