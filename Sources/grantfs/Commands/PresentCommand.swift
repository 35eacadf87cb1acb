import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// `grantfs present`
enum PresentCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
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
