import GrantCommandLine
import GrantFleet
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs metrics`
enum MetricsCommand {
    static let declaration = CommandDeclaration(
        "metrics", "How much do the mounts, the host's agent or the fleet do? Counts for a monitoring system, as OpenMetrics.",
        options: [
            CommonOptions.view, OptionDeclaration("timeout", value: "S", help: "seconds for each mount to answer (default: 2)"),
            OptionDeclaration("fleet", help: "of the fleet as its administrator sees it: hosts, those that lag, grants by state"),
            OptionDeclaration("listen", value: "unix:PATH", help: "answer scrapes by HTTP at this socket, until interrupted"),
        ],
        notes: [
            "For node_exporter's textfile collector write it to a file beside and rename that. For a scrape, --listen "
                + "makes a socket of mode 0600."
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let view = try arguments.view()
        let timeout = arguments.has("timeout") ? try arguments.timeout() : 2
        let isFleet = arguments.has("fleet")
        if isFleet, view != nil { throw GrantError(.usage, "metrics: --view does not go with --fleet") }
        let read: @Sendable () throws(GrantError) -> String = { () throws(GrantError) in
            if isFleet { return FleetMetricsText.text(of: try arguments.openFleet().snapshot(leases: 0)) }
            guard let store = try arguments.openStoreIfThere() else { return MountMetricsText.text(of: []) }
            let mounts = try GrantAdministrator(store: store).metrics(view: view, timeout: timeout)
            return MountMetricsText.text(of: mounts) { FleetMetricsText.addAgent(of: store, to: &$0) }
        }
        guard let listen = arguments.bytes("listen") else {
            if !isFleet { _ = try arguments.knownView(in: try arguments.openStoreIfThere()) }
            try Terminal.print(try read(), terminator: "")
            return 0
        }
        guard listen.starts(with: Array("unix:".utf8)), listen.count > 5 else {
            throw GrantError(
                .usage, "invalid address “\(String(decoding: listen, as: UTF8.self))” for --listen",
                advice: "--listen unix:/run/grantfs.sock")
        }
        return try MetricsServer.run(path: CanonicalPath.absolute(Array(listen.dropFirst(5))), read)
    }
}
