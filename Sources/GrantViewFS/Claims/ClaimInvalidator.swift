import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Sends invalidations for claims that may block on locks which a program can hold.
///
/// These are the locks of the pages of cached listings, and the lock of a granted directory.
/// Threads that block are abandoned. No invalidation is started again while its first attempt
/// blocks. So repeated claims need hardly more threads than one claim.
///
/// Locking: `state` is rank 2, held for a moment and never while the kernel is notified.
final class ClaimInvalidator: Sendable {
    /// The invalidation of the names in one granted directory.
    final class Names: Sendable {
        /// How often it was requested, and how many names were invalidated.
        fileprivate let asked = Atomic<UInt64>(1)
        fileprivate let told = Atomic<UInt64>(0)
        fileprivate let done = Atomic<Bool>(false)
    }

    private struct State {
        /// By scope number.
        var names: [UInt32: Names] = [:]
        var listings: [DataInvalidator] = []
    }

    private let state = Lock(State())
    /// Claims that have ended and whose invalidations are still running: `ViewFS.unbind`.
    let ending = Atomic<Int>(0)

    /// Nanoseconds without progress after which a claim continues anyway.
    private static let patience: Int64 = 300_000_000
    /// The limit of threads that block on listings of one claim.
    private static let threads = 16

    /// Invalidates the data of directories, except those that still block from an earlier call.
    func invalidateListings(_ directories: [UInt64], _ view: ViewFS) -> DataInvalidator? {
        guard let notifier = view.session?.notifier else { return nil }
        let known = state.withLock { $0.listings }
        // Retries invalidations that could not be started for lack of threads.
        for invalidator in known { invalidator.poll() }
        let held = known.reduce(into: Set<UInt64>()) { $0.formUnion($1.unfinished) }
        let nodes = directories.filter { !held.contains($0) }
        if nodes.isEmpty { return nil }
        let invalidator = DataInvalidator(view, notifier, limit: Self.threads)
        invalidator.add(nodes)
        let over = Set(known.filter(\.isDone).map(ObjectIdentifier.init))
        state.withLock { state in
            state.listings.removeAll { over.contains(ObjectIdentifier($0)) }
            state.listings.append(invalidator)
        }
        _ = BackgroundTask {
            var backoff: UInt32 = 1_000
            while invalidator.isUnderWay {
                usleep(backoff)
                backoff = min(backoff * 2, 20_000)
                invalidator.poll()
            }
        }
        return invalidator
    }

    /// Drops the kernel's entries of a granted directory with their subtrees. Negative entries
    /// stay.
    func invalidateNames(in scope: Scope, _ view: ViewFS) -> Names {
        let (names, isNew) = state.withLock { state -> (Names, Bool) in
            if let names = state.names[scope.id.rawValue] {
                names.asked.wrappingAdd(1, ordering: .relaxed)
                return (names, false)
            }
            let names = Names()
            state.names[scope.id.rawValue] = names
            return (names, true)
        }
        if isNew {
            _ = BackgroundTask(mayHang: true) { [self] in
                var isAgain = true
                while isAgain {
                    let asked = names.asked.load(ordering: .relaxed)
                    Self.tell(names, scope, view)
                    isAgain = state.withLock { state in
                        if names.asked.load(ordering: .relaxed) != asked { return true }
                        state.names[scope.id.rawValue] = nil
                        return false
                    }
                }
                names.done.store(true, ordering: .releasing)
            }
        }
        return names
    }

    private static func tell(_ names: Names, _ scope: Scope, _ view: ViewFS) {
        guard let notifier = view.session?.notifier else { return }
        var found: [[UInt8]] = []
        view.tree.withRoot(of: scope.nodes) { number in
            if number >= 0 { found = (try? DirectoryNames.of("/proc/self/fd/\(number)".utf8)) ?? [] }
        }
        for name in found {
            _ = notifier.invalidateTree(name, in: NodeID(scope.rootNode))
            names.told.wrappingAdd(1, ordering: .relaxed)
        }
    }

    /// Waits until all invalidations have finished, or make no progress for a while.
    ///
    /// Returns false if `isCancelled` returned true.
    func wait(for listings: DataInvalidator?, _ names: [Names], _ isCancelled: () -> Bool) -> Bool {
        var (seen, since, backoff): (UInt64?, Int64, UInt32) = (nil, 0, 20)
        while listings?.isDone == false || !names.allSatisfy({ $0.done.load(ordering: .acquiring) }) {
            if isCancelled() { return false }
            listings?.poll()
            let count = names.reduce(listings?.finished ?? 0) { $0 &+ $1.told.load(ordering: .relaxed) }
            if count != seen { (seen, since) = (count, Clock.monotonic) }
            if Clock.monotonic - since > Self.patience { return true }
            usleep(backoff)
            backoff = min(backoff * 2, 5_000)
        }
        return true
    }
}
