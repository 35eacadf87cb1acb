import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// What presenters did before a revocation.
public struct RevocationGrace: Sendable, Equatable {
    /// How many presenters were asked to save, in all mounts.
    public var asked = 0
    /// How many of them answered in time, or exited by then.
    public var answered = 0
    /// How long that took.
    public var milliseconds = 0.0
}

extension GrantAdministrator {
    /// Tells the presenters of the grants that these are about to be revoked, and asks them to save. Returns when all have answered, or
    /// after `seconds`. Revokes nothing.
    ///
    /// `progress` is called on this thread while it waits.
    public func prepareRevocation(
        of grants: [Grant], within seconds: Double, progress: (CoordinationProgress) -> Void = { _ in }
    ) -> [GrantID: RevocationGrace] {
        let begin = Clock.monotonic
        let deadline = Clock.deadline(seconds: seconds)
        let views = Set(grants.map(\.view))
        // Without the store no mounts are known. The revocation itself reports that.
        let records = ((try? store.servedMounts()) ?? []).filter { views.contains(where: $0.shows) }
        let directory = store.runDirectory
        let id = GrantID.random()
        var parts = inParallel(records) { record in GracePart(record, id, grants.filter { record.shows($0.view) }, directory, deadline) }
        var (result, over) = ([GrantID: RevocationGrace](), Set<GrantID>())
        var (said, next): (Int?, Int64) = (nil, 0)
        while true {
            var set = PollSet()
            for place in parts.indices {
                parts[place].take()
                if let client = parts[place].client { set.add(client.descriptor) }
            }
            for grant in grants {
                let own = parts.compactMap { $0.states[grant.id] }
                var grace = RevocationGrace(asked: own.reduce(0) { $0 + $1.asked }, answered: own.reduce(0) { $0 + $1.answered })
                // The time until the last presenter of this grant was done, not of all grants.
                grace.milliseconds = over.contains(grant.id) ? result[grant.id]?.milliseconds ?? 0 : Double(Clock.monotonic - begin) / 1e6
                if own.allSatisfy(\.isOver) { over.insert(grant.id) }
                result[grant.id] = grace
            }
            let total = result.values.reduce(0) { $0 + $1.asked }
            let done = result.values.reduce(0) { $0 + $1.answered }
            // At most ten reports a second. The last one is always made.
            if total > 0, done != said, done == total || Clock.monotonic >= next {
                (said, next) = (done, Clock.monotonic + 100_000_000)
                progress(CoordinationProgress(stage: "asking presenters", done: UInt64(done), total: UInt64(total)))
            }
            let isOver = !parts.contains { $0.client != nil } || Clock.monotonic >= deadline
            // Answers that arrive at the last moment count.
            guard !isOver, (try? set.wait(until: deadline)) != nil else { return result }
        }
    }
}

/// The presenters of one mount.
private struct GracePart: Sendable {
    /// It is nil when no more answers are expected.
    private(set) var client: SessionClient?
    private(set) var states: [GrantID: (asked: Int, answered: Int, isOver: Bool)] = [:]
    private let grants: [GrantID]

    /// If the daemon does not answer, the revocation itself will ask it.
    init(_ record: MountRecord, _ id: GrantID, _ grants: [Grant], _ directory: String, _ deadline: Int64) {
        self.grants = grants.map(\.id)
        let patience = min(deadline, Clock.deadline(seconds: 2))
        guard let client = try? SessionClient(socket: record.socket, directory: directory, deadline: patience) else { return }
        for (number, grant) in grants.enumerated() {
            let left = UInt32(clamping: max(0, (deadline - Clock.monotonic) / 1_000_000))
            guard (try? client.send(.prepareRevocation(number: UInt64(number), id: id, grant: grant.id, milliseconds: left))) != nil else {
                return
            }
            states[grant.id] = (0, 0, false)
        }
        self.client = client
    }

    mutating func take() {
        while let client {
            do throws(ControlClient.Failure) {
                guard let news = try client.next() else { return }
                guard case .preparing(let number, let asked, let answered, let isOver) = news, number < grants.count else { continue }
                states[grants[Int(number)]] = (Int(asked), Int(answered), isOver)
                if states.values.allSatisfy(\.isOver) { self.client = nil }
            } catch {
                self.client = nil
            }
        }
    }
}
