import GrantFleet
import GrantModel
import GrantSystem

/// Looks at the fleet for as long as somebody wants to see it, so that a request waits for nothing, and a hundred browsers ask etcd no more than one.
///
/// Locking: what was seen last is behind one lock, held for a look or a change.
final class FleetView: Sendable {
    /// A look, or why there is none.
    struct Seen: Sendable {
        var picture: FleetPicture?
        var failure: String?
        /// Counts the looks that showed something else.
        var version = 0
        var state: JSONValue = .null
    }

    private struct Shared {
        var seen = Seen()
        /// When somebody wanted to see it last.
        var wanted: Int64 = .min
        var isEnding = false
    }

    /// Nobody has asked for so long: then nobody looks.
    private static let interest: Int64 = 10_000_000_000
    private static let leases = 32

    private let shared = Lock(Shared())
    private let wakes = Semaphore()
    private let connect: @Sendable () throws(GrantError) -> FleetStore

    /// `connect`: a connection of its own for each thread.
    init(connect: @escaping @Sendable () throws(GrantError) -> FleetStore) { self.connect = connect }

    func start() throws(GrantError) {
        do throws(Errno) {
            try WorkerThread.start("console-look") { [self] in lookAlways() }.detach()
            try WorkerThread.start("console-watch") { [self] in watchAlways() }.detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
    }

    func end() {
        shared.withLock { $0.isEnding = true }
        wakes.post()
    }

    /// What was seen last. It is looked again, soon, and for a while.
    func see() -> Seen {
        let (seen, wasAsleep) = shared.withLock { shared in
            let wasAsleep = !FleetView.isWanted(shared)
            shared.wanted = Clock.monotonic
            return (shared.seen, wasAsleep)
        }
        if wasAsleep { wakes.post() }
        return seen
    }

    /// Something has changed.
    func lookSoon() { wakes.post() }

    private static func isWanted(_ shared: Shared) -> Bool { shared.wanted > Clock.monotonic - interest }
    private var isEnding: Bool { shared.withLock { $0.isEnding } }
    private var isWanted: Bool { shared.withLock { !$0.isEnding && FleetView.isWanted($0) } }

    private func lookAlways() {
        var fleet: FleetStore?
        while !isEnding {
            guard isWanted else {
                wakes.waitForAny(within: 1_000)
                continue
            }
            let result = look(&fleet)
            shared.withLock { shared in
                switch result {
                case .success(let picture):
                    let state = StateJSON.of(picture)
                    if state != shared.seen.state || shared.seen.failure != nil { shared.seen.version += 1 }
                    (shared.seen.picture, shared.seen.state, shared.seen.failure) = (picture, state, nil)
                case .failure(let error):
                    if shared.seen.failure != error.description { shared.seen.version += 1 }
                    // What was seen last stays, and is said to be old.
                    shared.seen.failure = error.description
                }
            }
            // Changes come in heaps; each is seen all the same.
            ThreadSleep.milliseconds(50)
            wakes.waitForAny(within: 950)
        }
    }

    private func look(_ fleet: inout FleetStore?) -> Result<FleetPicture, GrantError> {
        do throws(GrantError) {
            if fleet == nil { fleet = try connect() }
            guard let fleet else { throw GrantError(.system, "the fleet cannot be read") }
            return .success(try fleet.picture(leases: FleetView.leases))
        } catch {
            return .failure(error)
        }
    }

    private func watchAlways() {
        var fleet: FleetStore?
        while !isEnding {
            guard isWanted, let revision = shared.withLock({ $0.seen.picture?.revision }) else {
                ThreadSleep.milliseconds(200)
                continue
            }
            do throws(GrantError) {
                if fleet == nil { fleet = try connect() }
                try fleet?.watchChanges(after: revision, milliseconds: 60_000, goesOn: { [self] in isWanted }) { [self] _ in lookSoon() }
            } catch {
                // Whoever looks says why.
                ThreadSleep.milliseconds(1_000)
            }
        }
    }
}
