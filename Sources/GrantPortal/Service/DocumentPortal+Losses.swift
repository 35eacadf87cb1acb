import GrantSystem
import Synchronization

/// Tracks messages that the bus may have dropped.
final class BusLosses: Sendable {
    /// Whether it is not known which connections there are.
    let isUnsure = Atomic(false)
    /// Whether the connection for calls had so much waiting that some may have been dropped.
    fileprivate let isBehind = Atomic(false)
    /// Whether the bus keeps no statistics.
    fileprivate let isUnknown = Atomic(false)
}

/// The bus keeps messages for a connection that does not read them, up to a limit
/// (`max_outgoing_bytes`), and drops signals beyond it without a word. Any client of the bus can
/// send so much to this service that it misses removals in the permission store, or which
/// connections there are. So it looks how much the bus has had waiting for each of its connections,
/// gives up those that had too much, and reads everything again.
extension DocumentPortal {
    /// dbus-daemon's limit is 127 MiB unless it is configured. The session's is 1 GB.
    private static let mostWaiting: UInt64 = 64 << 20

    /// One worker at a time calls this.
    func lookForLosses(_ bus: BusService) {
        if losses.isUnsure.exchange(false, ordering: .relaxed) { lookAtConnections(bus) }
        for client in [callers.bus, arrivals.bus] where hasHadTooMuch(client.name) != nil { client.giveUp() }
        if hasHadTooMuch(documents.permissions.bus.name) != nil {
            documents.permissions.bus.giveUp()
            load()
        }
        guard let waiting = hasHadTooMuch(bus.name) else { return losses.isBehind.store(false, ordering: .relaxed) }
        // A new connection loses the calls that wait on the former one, so they have some time.
        // Losses are not found earlier.
        guard waiting == 0 || losses.isBehind.exchange(true, ordering: .relaxed) else { return }
        losses.isBehind.store(false, ordering: .relaxed)
        bus.renew()
    }

    /// If the bus has had too many bytes waiting for the connection at a time: how many wait now.
    private func hasHadTooMuch(_ name: String?) -> UInt64? {
        guard let name, !losses.isUnknown.load(ordering: .relaxed) else { return nil }
        do throws(BusError) {
            let answer = try arrivals.bus.ask("GetConnectionStats", [.text(name)], interface: BusClient.daemon + ".Debug.Stats")
            guard let most = answer?.option("PeakOutgoingBytes")?.unsigned, most > Self.mostWaiting else { return nil }
            return answer?.option("OutgoingBytes")?.unsigned ?? 0
        } catch {
            let unknown = ["UnknownMethod", "UnknownInterface", "AccessDenied"]
            if unknown.contains(where: { error.name == BusClient.daemon + ".Error." + $0 }) {
                losses.isUnknown.store(true, ordering: .relaxed)
            }
            return nil
        }
    }
}
