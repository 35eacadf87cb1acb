import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Notifications of changes beside the mount that may wait for a lock which a program can hold: of a name, for its directory's lock, and of a cached
/// listing, for its pages. They are made by threads that can be left behind, so that one that waits keeps no other change from being told.
///
/// Not safe to share: belongs to one `HostChangeRelay`.
final class BlockingNotifications {
    struct Item: Sendable {
        enum What {
            /// A name in the directory `node`; ends with a 0.
            case name([CChar])
            /// The same, of a file that is to go with its name when nobody uses it, where the kernel does not know by itself what nobody uses.
            case file(named: [CChar])
            /// Files that were in use when they were changed, and may be in use no more.
            case unused([UInt64])
            /// What the directory lists.
            case listing
            /// What is in a regular file, and what the kernel knows of it (`ViewFS.takeHostChange`).
            case contents
        }

        let scope: UInt32
        let node: UInt64
        let what: What
    }

    private let calls: AbandonableCalls<Item>
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
        calls = AbandonableCalls(limit: Self.limit) { item in
            guard let notifier = view.session?.notifier else { return }
            switch item.what {
            case .name(let name):
                _ = name.withUnsafeBufferPointer {
                    notifier.expireEntry($0.baseAddress!, length: $0.count - 1, in: NodeID(item.node))
                }
            case .file(let name):
                if notifier.prune([]) == 0 { return }
                _ = name.withUnsafeBufferPointer {
                    notifier.invalidateEntry($0.baseAddress!, length: $0.count - 1, in: NodeID(item.node))
                }
            case .unused(let nodes): _ = notifier.prune(nodes[...])
            case .listing: _ = notifier.invalidateData(NodeID(item.node))
            case .contents: view.takeHostChange(of: item.node, notifier)
            }
        }
    }

    /// The next use of a name asks again.
    func expire(_ name: UnsafePointer<CChar>, in node: UInt64, of scope: UInt32) {
        add(Item(scope: scope, node: node, what: .name(Array(UnsafeBufferPointer(start: name, count: strlen(name) + 1)))))
    }

    /// A file that was changed is forgotten with its name, when nobody uses it: after `invalidateFile`.
    func invalidateFile(named name: UnsafePointer<CChar>, in node: UInt64, of scope: UInt32) {
        add(Item(scope: scope, node: node, what: .file(named: Array(UnsafeBufferPointer(start: name, count: strlen(name) + 1)))))
    }

    /// A directory's listing is forgotten.
    func invalidateListing(of node: UInt64, in scope: UInt32) { add(Item(scope: scope, node: node, what: .listing)) }

    /// What the kernel knows of a regular file that was changed is forgotten, where it goes by its own otherwise; what it does not forget of one that is in use, when that is over.
    func invalidateFile(_ node: UInt64, in scope: UInt32) {
        add(Item(scope: scope, node: node, what: .contents))
        if changed.count < Self.changedAtMost, changed.insert(node).inserted { changedPause = Self.firstPause }
    }

    /// Files that were changed and may have been in use then.
    private var changed: Set<UInt64> = []
    private var changedLookedAt: Int64 = 0
    private static let changedAtMost = 4096
    /// Nanoseconds until they are looked at again: most are in use for a moment, some for days.
    private var changedPause = firstPause
    private static let (firstPause, lastPause): (Int64, Int64) = (10_000_000, 1_000_000_000)

    /// Has those forgotten whole that are in use no more, soon at first and then once a second. `isKnown`: whether the kernel knows a node.
    func forgetChanged(now: Int64, _ isKnown: (UInt64) -> Bool) {
        if changed.isEmpty || now - changedLookedAt < changedPause { return }
        changedLookedAt = now
        changedPause = min(2 * changedPause, Self.lastPause)
        changed = changed.filter(isKnown)
        if !changed.isEmpty { add(Item(scope: 0, node: 0, what: .unused(Array(changed)))) }
    }

    private func add(_ item: Item) {
        gathered.append(item)
        if gathered.count >= Self.atOnce { send() }
    }

    /// After the changes of one waking.
    func send() {
        if gathered.isEmpty { return }
        var items = gathered
        gathered = []
        let waiting = calls.abandoned
        if !waiting.isEmpty {
            var shares: [UInt32: Int] = [:]
            for item in waiting { shares[item.scope, default: 0] += 1 }
            let held = Set(waiting.map(\.node))
            // Behind one that waits for the same lock there is nothing to be told before it.
            let count = items.count
            items.removeAll { held.contains($0.node) || shares[$0.scope, default: 0] >= Self.share }
            if items.count != count { hasDropped = true }
        }
        if calls.pending < Self.pendingAtMost { calls.add(items) } else { hasDropped = true }
    }

    /// Something was not told, because of what waits.
    private var hasDropped = false
    private var droppedTaken: Int64 = 0
    private static let droppedPause: Int64 = 1_000_000_000

    /// Whether something was not told and can be by now; said once.
    func takeDropped() -> Bool {
        let now = Clock.monotonic
        // To make good for it takes as long as there are nodes: whoever changes much all the time on the host is not to keep this thread at it.
        guard hasDropped, calls.abandoned.isEmpty, calls.pending < Self.pendingAtMost, now - droppedTaken > Self.droppedPause else {
            return false
        }
        (hasDropped, droppedTaken) = (false, now)
        return true
    }

    /// Milliseconds after which `poll` is worth calling; nil when nothing waits.
    var due: Int32? {
        if hasDropped || calls.isUnderWay || calls.pending > 0 { return Self.patienceMilliseconds }
        return changed.isEmpty ? nil : Int32(clamping: changedPause / 1_000_000)
    }

    func poll() { calls.abandon(after: Self.patience) }
}
