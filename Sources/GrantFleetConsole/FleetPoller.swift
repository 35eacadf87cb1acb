import GrantFleet
import GrantModel
import GrantSystem

/// Polls the fleet while clients want to see it, so that no request waits, and a hundred browsers cause no more load on etcd than one.
///
/// Locking: one lock around the last snapshot, held for an access.
final class FleetPoller: Sendable {
    /// A snapshot, or the reason why there is none.
    struct Observation: Sendable {
        var snapshot: FleetSnapshot?
        var failure: String?
        /// Counts the snapshots that differed.
        var version = 0
        var state: JSONValue = .null
    }

    private struct Shared {
        var latestObservation = Observation()
        /// When a client last asked.
        var lastRequest: Int64 = .min
        var isEnding = false
    }

    /// How long after the last request polling continues: nanoseconds.
    private static let idleTimeout: Int64 = 10_000_000_000
    private static let leases = 32

    private let shared = Lock(Shared())
    private let wakeUp = Semaphore()
    private let connect: @Sendable () throws(GrantError) -> FleetStore

    /// `connect`: makes a connection for each thread.
    init(connect: @escaping @Sendable () throws(GrantError) -> FleetStore) { self.connect = connect }

    func start() throws(GrantError) {
        do throws(Errno) {
            try WorkerThread.start("console-look") { [self] in pollLoop() }.detach()
            try WorkerThread.start("console-watch") { [self] in watchLoop() }.detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
    }

    func end() {
        shared.withLock { $0.isEnding = true }
        wakeUp.post()
    }

    /// Returns the last snapshot, and keeps polling for a while.
    func latest() -> Observation {
        let (latestObservation, wasAsleep) = shared.withLock { shared in
            let wasAsleep = !FleetPoller.isWanted(shared)
            shared.lastRequest = Clock.monotonic
            return (shared.latestObservation, wasAsleep)
        }
        if wasAsleep { wakeUp.post() }
        return latestObservation
    }

    /// Takes a new snapshot soon.
    func refresh() { wakeUp.post() }

    private static func isWanted(_ shared: Shared) -> Bool { shared.lastRequest > Clock.monotonic - idleTimeout }
    private var isEnding: Bool { shared.withLock { $0.isEnding } }
    private var isWanted: Bool { shared.withLock { !$0.isEnding && FleetPoller.isWanted($0) } }

    private func pollLoop() {
        var fleet: FleetStore?
        while !isEnding {
            guard isWanted else {
                wakeUp.waitForAny(within: 1_000)
                continue
            }
            let result = fetch(&fleet)
            shared.withLock { shared in
                switch result {
                case .success(let snapshot):
                    let state = StateJSON.of(snapshot)
                    if state != shared.latestObservation.state || shared.latestObservation.failure != nil {
                        shared.latestObservation.version += 1
                    }
                    (shared.latestObservation.snapshot, shared.latestObservation.state, shared.latestObservation.failure) = (
                        snapshot, state, nil
                    )
                case .failure(let error):
                    if shared.latestObservation.failure != error.description { shared.latestObservation.version += 1 }
                    // The last snapshot stays, and is marked as old.
                    shared.latestObservation.failure = error.description
                }
            }
            // Changes come in bursts. None is lost.
            ThreadSleep.milliseconds(50)
            wakeUp.waitForAny(within: 950)
        }
    }

    private func fetch(_ fleet: inout FleetStore?) -> Result<FleetSnapshot, GrantError> {
        do throws(GrantError) {
            if fleet == nil { fleet = try connect() }
            guard let fleet else { throw GrantError(.system, "the fleet cannot be read") }
            return .success(try fleet.snapshot(leases: FleetPoller.leases))
        } catch {
            return .failure(error)
        }
    }

    private func watchLoop() {
        var fleet: FleetStore?
        while !isEnding {
            guard isWanted, let revision = shared.withLock({ $0.latestObservation.snapshot?.revision }) else {
                ThreadSleep.milliseconds(200)
                continue
            }
            do throws(GrantError) {
                if fleet == nil { fleet = try connect() }
                try fleet?.watchChanges(after: revision, milliseconds: 60_000, goesOn: { [self] in isWanted }) { [self] _ in refresh() }
            } catch {
                // The polling thread reports the reason.
                ThreadSleep.milliseconds(1_000)
            }
        }
    }
}
