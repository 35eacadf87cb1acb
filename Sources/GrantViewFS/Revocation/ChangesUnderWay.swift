import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization

/// Changes that still run after their callers have received a reply in their workers' place.
///
/// A withdrawal is not confirmed while a change makes progress, so that nothing is written after
/// it. A change without progress waits for a filesystem that does not respond.
///
/// Locking: its own, rank 2, held for a moment.
final class ChangesUnderWay: Sendable {
    private struct Change {
        let occupant: Coordinator.Occupant
        let worker: pid_t
        var runtime: Int64
        /// When it last made progress, by `Clock.monotonic`.
        var moved: Int64
    }

    private unowned let view: ViewFS
    private let changes = Lock<[Change]>([])

    /// Nanoseconds without processor time after which a worker counts as making no progress.
    ///
    /// The kernel delays a writer by at most 0.2 s at once (mm/page-writeback.c, MAX_PAUSE).
    private static let still: Int64 = 400_000_000

    init(_ view: ViewFS) { self.view = view }

    func add(_ occupants: [Coordinator.Occupant]) {
        guard let session = view.session else { return }
        let now = Clock.monotonic
        let new = occupants.filter(\.entry.isChange).map { occupant in
            let worker = session.thread(ofSlot: occupant.slot)
            return Change(occupant: occupant, worker: worker, runtime: clinux_other_runtime(worker), moved: now)
        }
        changes.withLock { $0 += new }
    }

    /// Whether no change is left that makes progress.
    func poll() -> Bool {
        changes.withLock { changes in
            changes = changes.compactMap { change in
                guard view.coordinator.isInside(change.occupant) else { return nil }
                var change = change
                let (runtime, now) = (clinux_other_runtime(change.worker), Clock.monotonic)
                if runtime != change.runtime { (change.runtime, change.moved) = (runtime, now) }
                return now - change.moved < Self.still ? change : nil
            }
            return changes.isEmpty
        }
    }

    var isEmpty: Bool { changes.withLock { $0.isEmpty } }
}
