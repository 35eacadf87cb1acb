import GrantFleet
import GrantModel
import GrantSystem

/// The revocations and restores of this console, and the hosts' answers. Each change has a thread, so that no request waits.
///
/// Locking: one lock around the list, held for an access.
final class Changes: Sendable {
    enum Kind: String, Sendable {
        case revoke
        case restore

        var event: String { self == .revoke ? "revoked" : "restored" }
    }

    private struct Change: Sendable {
        let number: Int
        let kind: Kind
        let id: GrantID
        let name: String
        let started: Instant
        var hosts: [HostConfirmation] = []
        var isRecorded = false
        var isOver = false
        var failure: String?

        var json: JSONValue {
            .object([
                "number": .integer(Int64(number)), "kind": .string(kind.rawValue), "id": .string(id.description),
                "name": StateJSON.name(name),
                "started": StateJSON.time(started), "recorded": .bool(isRecorded), "over": .bool(isOver),
                "failure": failure.map { StateJSON.text($0, most: 500) } ?? .null,
                "hosts": .array(
                    hosts.map { host in
                        .object([
                            "host": StateJSON.name(host.host, most: 100), "state": .string(host.state.rawValue),
                            "milliseconds": .number((host.milliseconds * 10).rounded() / 10),
                            "problem": host.state == .waiting ? .null : host.reason.map { StateJSON.text($0, most: 300) } ?? .null,
                        ])
                    }),
            ])
        }
    }

    private struct Shared {
        var changes: [Change] = []
        var next = 1
        /// The number of threads at work.
        var working = 0
        /// Counts updates.
        var version = 0
    }

    /// The maximum of unrecorded changes in progress, of finished ones to keep, and of threads.
    private static let maxPending = 8
    private static let maxFinished = 12
    private static let maxThreads = 64

    private let shared = Lock(Shared())
    private let connect: @Sendable (_ who: String) throws(GrantError) -> FleetStore
    private let log: @Sendable (String) -> Void
    private let poller: FleetPoller

    init(
        poller: FleetPoller, connect: @escaping @Sendable (_ who: String) throws(GrantError) -> FleetStore,
        log: @escaping @Sendable (String) -> Void
    ) {
        (self.poller, self.connect, self.log) = (poller, connect, log)
    }

    var version: Int { shared.withLock { $0.version } }
    var json: JSONValue { .array(shared.withLock { $0.changes }.map(\.json)) }

    /// Starts a change and returns its number, or nil if there are too many. `seen` is the revision
    /// that the user has looked at: a grant is restored as it was then, or not at all.
    func begin(_ kind: Kind, _ grant: FleetGrant, seen: Int64, who: String, from peer: String) -> Int? {
        let number = shared.withLock { shared -> Int? in
            // A recorded change waits only for hosts, and a host that does not answer must not block the next revocation.
            guard shared.changes.count(where: { !$0.isOver && !$0.isRecorded }) < Changes.maxPending, shared.working < Changes.maxThreads
            else {
                return nil
            }
            shared.working += 1
            while shared.changes.count >= Changes.maxFinished, let old = shared.changes.firstIndex(where: { $0.isOver || $0.isRecorded }) {
                shared.changes.remove(at: old)
            }
            let number = shared.next
            shared.next += 1
            shared.version += 1
            shared.changes.append(
                Change(
                    number: number, kind: kind, id: grant.id, name: grant.name.description, started: Instant(nanoseconds: Clock.realtime)))
            return number
        }
        guard let number else { return nil }
        do throws(Errno) {
            try WorkerThread.start("console-change") { [self] in carryOut(number, kind, grant, seen, who, peer) }.detach()
        } catch {
            shared.withLock { $0.working -= 1 }
            update(number) { ($0.isOver, $0.failure) = (true, "no thread could be started: \(error.description)") }
        }
        return number
    }

    private func update(_ number: Int, _ body: (inout Change) -> Void) {
        shared.withLock { shared in
            guard let index = shared.changes.firstIndex(where: { $0.number == number }) else { return }
            body(&shared.changes[index])
            shared.version += 1
        }
    }

    private func carryOut(_ number: Int, _ kind: Kind, _ grant: FleetGrant, _ seen: Int64, _ who: String, _ peer: String) {
        defer { shared.withLock { $0.working -= 1 } }
        let subject = "“\(grant.name)” (\(grant.id.description.prefix(12))) of the view “\(grant.view)”"
        var isRecorded = false
        do throws(GrantError) {
            let fleet = try connect(who)
            let now = Instant(nanoseconds: Clock.realtime)
            let outcome = try fleet.change([grant], kind.event, withdraws: kind == .revoke) { grant throws(GrantError) in
                kind == .revoke ? grant.revoked : try grant.restored(at: now, seen: seen)
            }
            log("\(kind.event) \(subject), for \(who) at \(peer)")
            isRecorded = true
            update(number) { $0.isRecorded = true }
            poller.refresh()
            // No client waits for it any more, and threads are few.
            guard shared.withLock({ $0.changes.contains { $0.number == number } }) else { return poller.refresh() }
            let patience = min(120, Double((try? fleet.format().lease) ?? 60) * 2 + 5)
            let result = try fleet.awaitHosts(
                outcome, timeout: patience,
                seen: { [self] changes in
                    update(number) { $0.hosts = changes.flatMap(\.hosts) }
                })
            update(number) { change in
                change.hosts = result.flatMap(\.hosts)
                change.isOver = true
            }
        } catch {
            // A reader of the log must not take a recorded change for undone.
            log("\(isRecorded ? "" : "not ")\(kind.event): \(subject), for \(who) at \(peer): \(error.description)")
            update(number) { ($0.isOver, $0.failure) = (true, error.description) }
        }
        poller.refresh()
    }
}
