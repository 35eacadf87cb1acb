import FUSEKit
import Glibc
import LinuxFS
import ViewTree

/// Notifications of changes beside the mount that may wait for a lock which a program can hold: of a name, for its directory's lock, and of a cached
/// listing, for its pages. They are made by threads that can be left behind, so that one that waits keeps no other change from being told.
///
/// Not safe to share: belongs to one `ChangeTeller`.
final class HeldNotifications {
    struct Item: Sendable {
        let scope: UInt32
        let node: UInt64
        /// Ends with a 0; empty for the node's own data.
        let name: [CChar]
    }

    private let calls: LeavableCalls<Item>
    private var gathered: [Item] = []

    private static let limit = 256
    /// So many may wait for locks of one scope; more changes there show when the kernel's time is over.
    private static let share = 16
    private static let patience: Int64 = 50_000_000
    private static let patienceMilliseconds: Int32 = 50
    private static let atOnce = 1024
    /// Of more that cannot be told just now the rest is not told: by then the kernel asks by itself.
    private static let pendingAtMost = 16_384

    init(_ view: ViewFS) {
        calls = LeavableCalls(limit: Self.limit) { item in
            guard let notifier = view.session?.notifier else { return }
            if item.name.isEmpty {
                _ = notifier.forgetData(NodeID(item.node))
            } else {
                _ = item.name.withUnsafeBufferPointer {
                    notifier.expireName($0.baseAddress!, length: $0.count - 1, in: NodeID(item.node))
                }
            }
        }
    }

    /// The next use of a name asks again.
    func expire(_ name: UnsafePointer<CChar>, in node: UInt64, of scope: UInt32) {
        add(Item(scope: scope, node: node, name: Array(UnsafeBufferPointer(start: name, count: strlen(name) + 1))))
    }

    /// A directory's listing is forgotten.
    func forgetListing(of node: UInt64, in scope: UInt32) { add(Item(scope: scope, node: node, name: [])) }

    private func add(_ item: Item) {
        gathered.append(item)
        if gathered.count >= Self.atOnce { send() }
    }

    /// After the changes of one waking.
    func send() {
        if gathered.isEmpty { return }
        var items = gathered
        gathered = []
        let waiting = calls.left
        if !waiting.isEmpty {
            var shares: [UInt32: Int] = [:]
            for item in waiting { shares[item.scope, default: 0] += 1 }
            let held = Set(waiting.map(\.node))
            // Behind one that waits for the same lock there is nothing to be told before it.
            items.removeAll { held.contains($0.node) || shares[$0.scope, default: 0] >= Self.share }
        }
        if calls.pending < Self.pendingAtMost { calls.add(items) }
    }

    /// Milliseconds after which `look` is worth calling; nil when nothing waits.
    var due: Int32? { calls.isUnderWay || calls.pending > 0 ? Self.patienceMilliseconds : nil }

    func look() { calls.leave(after: Self.patience) }
}
