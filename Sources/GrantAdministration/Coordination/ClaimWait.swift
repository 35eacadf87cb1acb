import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A claim in one mount.
struct ClaimPart {
    let record: MountRecord
    let client: SessionClient
    var reach: [ItemReach] = []

    /// The client's number for the claim: each claim has its own connection.
    static let number: UInt64 = 1

    /// Returns why the claim is lost, or nil while it is held. Reads the messages that have arrived
    /// and does not block.
    func lost(_ path: [UInt8]) -> CoordinationError? {
        while true {
            let news: SessionNews?
            do throws(ControlClient.Failure) {
                news = try client.next()
            } catch {
                return .daemonDied(mountpoint: record.mountpoint)
            }
            guard let news else { return nil }
            if case .refused(_, let refusal, let text) = news { return CoordinationError(refusal, text, path) }
        }
    }
}

extension CoordinationError {
    init(_ refusal: ClaimRefusal, _ text: String, _ path: [UInt8]) {
        switch refusal {
        case .outside: self = .outside(path)
        case .revoked: self = .revoked(path)
        case .deadlock: self = .deadlock
        case .ended: self = .cancelled
        case .failed: self = .failed(text)
        }
    }
}

/// Takes a claim in one mount after the other.
struct ClaimWait {
    let request: ClaimRequest
    let deadline: Int64?
    let cancellation: CoordinationCancellation?
    let progress: ((CoordinationProgress) -> Void)?
    /// The store's directory of sockets.
    let directory: String
    /// It is nil if one mount covers all items.
    private var deadlockDetector: DeadlockDetector?
    /// The mounts that were not asked yet, and the one that is being asked.
    private var records: ArraySlice<MountRecord>
    private var asked: Asked?
    private(set) var reach: [ItemReach]
    private(set) var parts: [ClaimPart] = []

    private struct Asked {
        let record: MountRecord
        var client: SessionClient
        var firstAnswerDeadline: Int64
        var hasAnswered = false
        var failovers = 0
    }

    /// How many daemons may die, one after the other, during the wait for the claim.
    private static let maxFailovers = 10
    /// How long a daemon may take to answer whether the claim has to wait: nanoseconds.
    private static let firstAnswerTimeout: Int64 = 10_000_000_000
    /// The minimum of that time, however short the caller's time-out is: a caller that waits for
    /// nothing still gets free items.
    private static let minFirstAnswerTimeout: Int64 = 2_000_000_000

    init(
        _ request: ClaimRequest, in records: [MountRecord], _ directory: String, until deadline: Int64?,
        cancellation: CoordinationCancellation?, progress: ((CoordinationProgress) -> Void)?
    ) {
        (self.request, self.records, self.directory, self.deadline) = (request, records[...], directory, deadline)
        (self.cancellation, self.progress) = (cancellation, progress)
        reach = [ItemReach](repeating: .outside, count: request.items.count)
        if records.count > 1 {
            deadlockDetector = DeadlockDetector(claimant: request.claimant, records: records, directory: directory)
        }
    }

    /// The deadline for a daemon's first answer, by `Clock.monotonic`.
    private func firstAnswerDeadline() -> Int64 {
        let now = Clock.monotonic
        return min(now + Self.firstAnswerTimeout, max(deadline ?? .max, now + Self.minFirstAnswerTimeout))
    }

    private var path: [UInt8] { request.items.first?.path ?? [] }

    /// Goes on as far as it can. Waits for the first answer of each daemon, but for no other claim.
    ///
    /// Returns whether all mounts were asked. Otherwise the claim waits for others: call it again after `wait`, or after `resume`.
    mutating func advance() throws(CoordinationError) -> Bool {
        while let record = records.first {
            if asked == nil, let client = try ask(record) {
                asked = Asked(record: record, client: client, firstAnswerDeadline: firstAnswerDeadline())
            }
            guard try takeAnswers() else { return false }
            asked = nil
            records.removeFirst()
        }
        return true
    }

    /// Returns false if the daemon that is asked has answered that the claim waits.
    private mutating func takeAnswers() throws(CoordinationError) -> Bool {
        while var asked {
            let news: SessionNews?
            do throws(ControlClient.Failure) {
                news = try asked.client.next()
            } catch {
                // Another daemon may have taken over, which has no record of the claim or has
                // reported that.
                asked.failovers += 1
                guard asked.failovers < Self.maxFailovers, asked.record.isServed(in: directory), let other = try ask(asked.record) else {
                    throw .daemonDied(mountpoint: asked.record.mountpoint)
                }
                // It has to answer by itself, regardless of its predecessor's answer.
                (asked.client, asked.firstAnswerDeadline, asked.hasAnswered) = (other, self.firstAnswerDeadline(), false)
                self.asked = asked
                continue
            }
            switch news {
            case .granted(_, let own):
                for place in own.indices where place < reach.count && own[place] != .outside && reach[place] != .reached {
                    reach[place] = own[place]
                }
                parts.append(ClaimPart(record: asked.record, client: asked.client, reach: own))
                return true
            case .refused(_, .outside, _): return true
            case .refused(_, .revoked, _):
                for place in reach.indices where reach[place] == .outside { reach[place] = .revoked }
                if asked.hasAnswered { throw .revoked(path) }
                return true
            case .refused(_, let refusal, let text): throw CoordinationError(refusal, text, path)
            case .waits(_, let pids):
                self.asked?.hasAnswered = true
                progress?(CoordinationProgress(stage: "waiting", done: 0, total: nil, pids: pids))
            case .progress(_, let stage, let done, let total):
                self.asked?.hasAnswered = true
                progress?(CoordinationProgress(stage: stage, done: done, total: total == 0 ? nil : total))
            case .tells, .listening, .presenting, .notPresenting, .asks, .tellsPresenter, .preparing: break
            case nil:
                if asked.hasAnswered { return false }
                try wait()
            }
        }
        return true
    }

    /// Requests the claim on a connection of its own. Returns nil if the daemon is dead.
    private func ask(_ record: MountRecord) throws(CoordinationError) -> SessionClient? {
        for _ in 0..<Self.maxFailovers {
            guard let client = try connect(record) else { return nil }
            if (try? client.send(.claim(request))) != nil { return client }
        }
        throw .daemonDied(mountpoint: record.mountpoint)
    }

    /// Returns nil when the daemon is dead.
    private func connect(_ record: MountRecord) throws(CoordinationError) -> SessionClient? {
        let limit = firstAnswerDeadline()
        while true {
            do throws(ControlClient.Failure) {
                return try SessionClient(socket: record.socket, directory: directory, deadline: limit)
            } catch {
                switch error {
                case .absent, .hungUp:
                    if !record.isServed(in: directory) { return nil }
                    // The daemon is about to listen, or to exit.
                    if Clock.monotonic >= limit { throw .failed("\(error.description)") }
                    usleep(10_000)
                case .timedOut where deadline.map { $0 <= limit } ?? false: throw .timedOut
                case .timedOut, .stranger, .nonsense, .system:
                    throw .failed("the daemon of “\(String(decoding: record.mountpoint, as: UTF8.self))”: \(error.description)")
                }
            }
        }
    }

    // MARK: waiting

    /// The daemon that is asked comes first, then those that have granted their part.
    var descriptors: [Int32] { (asked.map { [$0.client.descriptor] } ?? []) + parts.map(\.client.descriptor) }

    /// When to go on though no descriptor is readable, by `Clock.monotonic`.
    var wakeUp: Int64? { [limit, nextLook].compactMap { $0 }.min() }

    private var awaitsFirstAnswer: Bool { asked?.hasAnswered == false }
    private var limit: Int64? { awaitsFirstAnswer ? asked?.firstAnswerDeadline : deadline }
    private var nextLook: Int64? { awaitsFirstAnswer ? nil : deadlockDetector?.next }

    /// Waits on this thread until there is something to do.
    mutating func wait() throws(CoordinationError) {
        var set = PollSet()
        for descriptor in descriptors { set.add(descriptor) }
        let isReady: Bool
        do throws(Errno) {
            if let cancellation {
                isReady = try cancellation.waiting { descriptor throws(Errno) in
                    set.add(descriptor)
                    return try set.wait(until: wakeUp)
                }
            } else {
                isReady = try set.wait(until: wakeUp)
            }
        } catch {
            throw .failed(error.description)
        }
        if isReady, cancellation != nil, set.isReadable(descriptors.count) { throw .cancelled }
        try resume(isReady: isReady)
    }

    /// Call it when a descriptor is readable, or at `wakeUp`.
    mutating func resume(isReady: Bool) throws(CoordinationError) {
        if !isReady, let look = nextLook, deadline.map({ look < $0 }) ?? true {
            if deadlockDetector?.isDeadlocked(before: deadline) == true { throw .deadlock }
            return
        }
        guard isReady else {
            // With less than the whole time-out, it is the caller's time that is over.
            if let asked, awaitsFirstAnswer, deadline.map({ asked.firstAnswerDeadline < $0 }) ?? true {
                throw .failed("the daemon of “\(String(decoding: asked.record.mountpoint, as: UTF8.self))” does not answer")
            }
            throw .timedOut
        }
        // Parts already held may be lost during the wait for the rest.
        for part in parts { if let error = part.lost(path) { throw error } }
    }
}

/// A claim that is being taken, for callers that wait without a thread each.
///
/// Sendable: one thread at a time uses it.
package final class PendingClaim: @unchecked Sendable {
    private var wait: ClaimWait

    init(_ wait: ClaimWait) { self.wait = wait }

    /// Goes on as far as it can, which may take as long as a daemon takes to answer. Returns nil while the claim waits for others.
    package func advance() throws(CoordinationError) -> Claim? {
        guard try wait.advance() else { return nil }
        let items = wait.request.items
        if let missing = wait.reach.firstIndex(where: { $0 != .reached }) {
            throw wait.reach[missing] == .revoked ? .revoked(items[missing].path) : .outside(items[missing].path)
        }
        return Claim(parts: wait.parts, items: items)
    }

    /// Waits on this thread until there is something to do.
    func waitForOthers() throws(CoordinationError) { try wait.wait() }

    /// Descriptors, of which one is readable when there is something to do.
    package var descriptors: [Int32] { wait.descriptors }
    /// When there is something to do in any case, by `Clock.monotonic`.
    package var wakeUp: Int64? { wait.wakeUp }

    /// Call it before `advance`, when a descriptor is readable or at `wakeUp`.
    package func resume(isReady: Bool) throws(CoordinationError) { try wait.resume(isReady: isReady) }
}
