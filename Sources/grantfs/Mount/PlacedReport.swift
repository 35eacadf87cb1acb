import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

/// What `CacheMounts` says about grants: to commands by a file (`PlacedGrants`), and to the mount's daemon, which reads the file when it is
/// told to, and does not show the names of those that are missing.
final class PlacedReport {
    /// The daemon is told to read the file.
    private final class Telling: Sendable {
        let missing: Set<VirtualDirectories.Occupant>
        private let outcome = Lock<Bool?>(nil)

        /// `missing`: those that the file says are missing.
        init(_ main: MountRecord, _ missing: Set<VirtualDirectories.Occupant>, in directory: String) {
            self.missing = missing
            let work: @Sendable () -> Void = { [self] in
                let isTold = PartCheck.apply(to: main, [], in: directory)
                outcome.withLock { $0 = isTold }
            }
            if (try? WorkerThread.start("grantfs-tell", work))?.detach() == nil { outcome.withLock { $0 = false } }
        }

        /// nil as long as it is not known.
        var isTold: Bool? { outcome.withLock { $0 } }
    }

    /// What the file says.
    private var said: (text: String, file: PlacedGrants)?
    private var telling: Telling?
    /// The earliest time (`Clock.monotonic`) for the next.
    private var nextTelling: Int64 = 0
    /// Those that are missing, as far as the daemon knows.
    private var told: Set<VirtualDirectories.Occupant> = []

    /// The delay before the next attempt to tell the daemon after a failure: nanoseconds.
    private static let retryDelay: Int64 = 1_000_000_000

    /// Says which grants are mounted and which are missing in the mount `main`, when that has changed. Returns whether there is more to say
    /// soon: the daemon has not answered yet.
    func say(mounted: [Grant], missing: [Grant], in main: MountRecord, _ store: GrantStore) -> Bool {
        if let telling, let isTold = telling.isTold {
            if isTold { told = telling.missing } else { nextTelling = Clock.monotonic + Self.retryDelay }
            self.telling = nil
        }
        let text = PlacedGrants.text(
            mounted.map { ($0, .mounted) } + missing.map { ($0, told.contains(.init($0)) ? .hidden : .missing) })
        if said?.text != text {
            let file = PlacedGrants(in: main.id, of: store)
            do throws(Errno) {
                try file.write(text)
                said = (text, file)
            } catch {
                SystemLog.write(.warning, "it cannot be said which grants are mounted: \(error)")
                return false
            }
        }
        let now = Set(missing.map { VirtualDirectories.Occupant($0) })
        if telling == nil, now != told, Clock.monotonic >= nextTelling { telling = Telling(main, now, in: store.runDirectory) }
        return telling != nil
    }

    func remove() { said?.file.remove() }
}
