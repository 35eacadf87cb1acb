import GrantControl
import GrantModel
import GrantStore

/// The connections of a hub to one mount, and what waits for them. It belongs to the hub's thread.
final class PresenterLink {
    /// A connection, and the items that are presented over it.
    final class Connection {
        let client: SessionClient
        /// By the number that the daemon knows them by.
        var items: [UInt64: PresentedItem] = [:]
        /// The registrations that the daemon has not answered yet.
        var awaited: Set<UInt64> = []
        private var last: UInt64 = 0

        init(_ client: SessionClient) { self.client = client }

        /// A daemon takes 1,024 presenters on one connection.
        var hasRoom: Bool { items.count < 1_000 }

        /// A number is used once, so a late message of the daemon reaches no other item.
        func number(for item: PresentedItem) -> UInt64 {
            last += 1
            items[last] = item
            awaited.insert(last)
            return last
        }
    }

    var record: MountRecord
    var connections: [Connection] = []
    var isConnecting = false
    /// The items to register, first come, first served.
    var queue: [PresentedItem] = []

    /// How many registrations are under way on one connection: a daemon refuses what goes beyond
    /// its own limit of searches.
    static let maxAwaited = 64

    var isIdle: Bool { connections.isEmpty && queue.isEmpty && !isConnecting }

    init(_ record: MountRecord) { self.record = record }
}
