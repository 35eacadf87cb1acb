import GrantCommandLine
import GrantCommandSupport
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs metrics`
enum MetricsCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let view = try arguments.view()
        let timeout = arguments.has("timeout") ? try arguments.timeout() : 2
        if !arguments.has("listen") { _ = try arguments.knownView(in: try arguments.openStoreIfThere()) }
        return try MetricsServer.run(arguments) { () throws(GrantError) in
            guard let store = try arguments.openStoreIfThere() else { return MountMetricsText.text(of: []) }
            let mounts = try GrantAdministrator(store: store).metrics(view: view, timeout: timeout)
            return MountMetricsText.text(of: mounts) { AgentMetricsText.add(agentOf: store, to: &$0) }
        }
    }
}
