import GrantFleet
import GrantModel
import GrantSystem

/// What was revoked and restored here, and how the hosts take it: each change on a thread of its own, so that no request waits.
///
/// Locking: the list is behind one lock, held for a look or a change.
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
                "name": StateJSON.text(name),
                "started": StateJSON.time(started), "recorded": .bool(isRecorded), "over": .bool(isOver),
                "failure": failure.map { StateJSON.text($0, most: 500) } ?? .null,
                "hosts": .array(
                    hosts.map { host in
                        .object([
                            "host": StateJSON.text(host.host, most: 100), "state": .string(host.state.rawValue),
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
        /// Threads that carry one out.
        var working = 0
        /// Counts what was told.
        var version = 0
    }

    /// So many are under way at once; of those that are over, so many are kept.
    private static let most = 8
    private static let kept = 12
    private static let threads = 64

    private let shared = Lock(Shared())
    private let connect: @Sendable (_ who: String) throws(GrantError) -> FleetStore
    private let says: @Sendable (String) -> Void
    private let view: FleetView

    init(
        view: FleetView, connect: @escaping @Sendable (_ who: String) throws(GrantError) -> FleetStore,
        says: @escaping @Sendable (String) -> Void
    ) {
        (self.view, self.connect, self.says) = (view, connect, says)
    }

    var version: Int { shared.withLock { $0.version } }
    var json: JSONValue { .array(shared.withLock { $0.changes }.map(\.json)) }

    /// Begins a change. `seen`: the revision that whoever asked has looked at: a grant is restored as it was then, or not at all. The number of the change; nil when too many are under way.
    func begin(_ kind: Kind, _ grant: FleetGrant, seen: Int64, who: String, from peer: String) -> Int? {
        let number = shared.withLock { shared -> Int? in
            // What is recorded waits for hosts alone, and a host that does not answer keeps nobody from the next withdrawal.
            guard shared.changes.count(where: { !$0.isOver && !$0.isRecorded }) < Changes.most, shared.working < Changes.threads else {
                return nil
            }
            shared.working += 1
            while shared.changes.count >= Changes.kept, let old = shared.changes.firstIndex(where: { $0.isOver || $0.isRecorded }) {
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
        do throws(GrantError) {
            let fleet = try connect(who)
            let now = Instant(nanoseconds: Clock.realtime)
            let outcome = try fleet.change([grant], kind.event, withdraws: kind == .revoke) { grant throws(GrantError) in
                if kind == .revoke { return grant.revoked }
                guard grant.revision == seen else {
                    throw GrantError(
                        .unconfirmed, "“\(grant.name)” is not restored", cause: "somebody has changed it since it was looked at")
                }
                return grant.restored(at: now)
            }
            says("\(kind.event) \(subject), for \(who) at \(peer)")
            update(number) { $0.isRecorded = true }
            view.lookSoon()
            // Nobody looks at it any more, and threads are few.
            guard shared.withLock({ $0.changes.contains { $0.number == number } }) else { return view.lookSoon() }
            let patience = min(120, try Double(fleet.format().lease) * 2 + 5)
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
            says("not \(kind.event): \(subject), for \(who) at \(peer): \(error.description)")
            update(number) { ($0.isOver, $0.failure) = (true, error.description) }
        }
        view.lookSoon()
    }
}
