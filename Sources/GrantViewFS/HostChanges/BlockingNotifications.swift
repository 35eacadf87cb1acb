import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Sends notifications that may block on a lock which a program can hold.
///
/// A name needs its directory's lock, a cached listing its pages. Blocked threads are abandoned, so
/// that one notification does not delay the others.
///
/// Not thread-safe: belongs to one `HostChangeRelay`.
final class BlockingNotifications {
    struct Item: Sendable {
        enum What {
            /// Expires a name, NUL-terminated, in the directory `node`.
            case name([CChar])
            /// Does the same for a file that should be evicted with its name.
            ///
            /// Used if the kernel cannot tell by itself which files are unused.
            case file(named: [CChar])
            /// Files that were in use when they changed, and may be unused by now.
            case unused([UInt64])
            /// A directory's listing.
            case listing
            /// A regular file's data and attributes (`ViewFS.takeHostChange`).
            case contents
        }

        let scope: UInt32
        let node: UInt64
        let what: What
    }

    private let calls: AbandonableCalls<Item>
    private var gathered: [Item] = []

    private static let limit = 256
    /// The limit of calls that block on one scope's locks.
    ///
    /// Further changes there show when the kernel's timeouts expire.
    private static let share = 16
    private static let patience: Int64 = 50_000_000
    private static let patienceMilliseconds: Int32 = 50
    private static let atOnce = 1024
    /// Above this backlog notifications are dropped, because the kernel's timeouts have expired by
    /// then.
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

    /// Makes the next use of a name send a request.
    func expire(_ name: UnsafePointer<CChar>, in node: UInt64, of scope: UInt32) {
        add(Item(scope: scope, node: node, what: .name(Array(UnsafeBufferPointer(start: name, count: strlen(name) + 1)))))
    }

    /// Evicts a changed file with its name if it is unused. Call it after `invalidateFile`.
    func invalidateFile(named name: UnsafePointer<CChar>, in node: UInt64, of scope: UInt32) {
        add(Item(scope: scope, node: node, what: .file(named: Array(UnsafeBufferPointer(start: name, count: strlen(name) + 1)))))
    }

    /// Invalidates a directory's listing.
    func invalidateListing(of node: UInt64, in scope: UInt32) { add(Item(scope: scope, node: node, what: .listing)) }

    /// Invalidates a changed regular file, if the kernel would trust its own data.
    ///
    /// Parts that are kept because the file is in use are evicted later.
    func invalidateFile(_ node: UInt64, in scope: UInt32) {
        add(Item(scope: scope, node: node, what: .contents))
        if changed.count < Self.changedAtMost, changed.insert(node).inserted { changedPause = Self.firstPause }
    }

    /// Files that were changed and may have been in use.
    private var changed: Set<UInt64> = []
    private var changedLookedAt: Int64 = 0
    private static let changedAtMost = 4096
    /// Nanoseconds until the next check: most files are in use for a moment, some for days.
    private var changedPause = firstPause
    private static let (firstPause, lastPause): (Int64, Int64) = (10_000_000, 1_000_000_000)

    /// Evicts changed files that are no longer in use: soon at first, then once a second.
    ///
    /// `isKnown`: whether the kernel knows a node.
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

    /// Sends the notifications of one batch of changes.
    func send() {
        if gathered.isEmpty { return }
        var items = gathered
        gathered = []
        let waiting = calls.abandoned
        if !waiting.isEmpty {
            var shares: [UInt32: Int] = [:]
            for item in waiting { shares[item.scope, default: 0] += 1 }
            let held = Set(waiting.map(\.node))
            // Notifications behind one that waits for the same lock are pointless before it
            // returns.
            let count = items.count
            items.removeAll { held.contains($0.node) || shares[$0.scope, default: 0] >= Self.share }
            if items.count != count { hasDropped = true }
        }
        if calls.pending < Self.pendingAtMost { calls.add(items) } else { hasDropped = true }
    }

    /// Some notifications were dropped because of blocked ones.
    private var hasDropped = false
    private var droppedTaken: Int64 = 0
    private static let droppedPause: Int64 = 1_000_000_000

    /// Whether a dropped notification can be repeated now. Reported once.
    func takeDropped() -> Bool {
        let now = Clock.monotonic
        // That takes time proportional to the number of nodes: frequent changes on the host must
        // not keep this thread busy.
        guard hasDropped, calls.abandoned.isEmpty, calls.pending < Self.pendingAtMost, now - droppedTaken > Self.droppedPause else {
            return false
        }
        (hasDropped, droppedTaken) = (false, now)
        return true
    }

    /// Milliseconds until `poll` is useful. It is nil if nothing is pending.
    var due: Int32? {
        if hasDropped || calls.isUnderWay || calls.pending > 0 { return Self.patienceMilliseconds }
        return changed.isEmpty ? nil : Int32(clamping: changedPause / 1_000_000)
    }

    func poll() { calls.abandon(after: Self.patience) }

    /// Whether all notifications were sent, or wait for locks of programs.
    var isDone: Bool { !calls.isUnderWay && calls.pending == calls.abandoned.count }
}
