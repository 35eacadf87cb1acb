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
    /// It is nil if one mount covers all items.
    var deadlockDetector: DeadlockDetector?
    var parts: [ClaimPart] = []

    /// How many daemons may die, one after the other, during the wait for the claim.
    private static let maxFailovers = 10
    /// How long a daemon may take to answer whether the claim has to wait: nanoseconds.
    private static let firstAnswerTimeout: Int64 = 10_000_000_000
    /// The minimum of that time, however short the caller's time-out is: a caller that waits for
    /// nothing still gets free items.
    private static let minFirstAnswerTimeout: Int64 = 2_000_000_000

    /// The deadline for a daemon's first answer, by `Clock.monotonic`.
    private func firstAnswerDeadline() -> Int64 {
        let now = Clock.monotonic
        return min(now + Self.firstAnswerTimeout, max(deadline ?? .max, now + Self.minFirstAnswerTimeout))
    }

    private var path: [UInt8] { request.items.first?.path ?? [] }

    /// Waits for the claim in one mount. Returns false if the mount does not lead to the items. `reach` is updated in either case.
    mutating func take(_ record: MountRecord, in directory: String, _ reach: inout [ItemReach]) throws(CoordinationError) -> Bool {
        guard var client = try ask(record, in: directory) else { return false }
        var (firstAnswerDeadline, hasAnswered, failovers) = (self.firstAnswerDeadline(), false, 0)
        while true {
            let news: SessionNews?
            do throws(ControlClient.Failure) {
                news = try client.next()
            } catch {
                // Another daemon may have taken over, which has no record of the claim or has
                // reported that.
                failovers += 1
                guard failovers < Self.maxFailovers, record.isServed(in: directory), let other = try ask(record, in: directory) else {
                    throw .daemonDied(mountpoint: record.mountpoint)
                }
                // It has to answer by itself, regardless of its predecessor's answer.
                (client, firstAnswerDeadline, hasAnswered) = (other, self.firstAnswerDeadline(), false)
                continue
            }
            switch news {
            case .granted(_, let own):
                let part = ClaimPart(record: record, client: client, reach: own)
                for place in own.indices where place < reach.count && own[place] != .outside && reach[place] != .reached {
                    reach[place] = own[place]
                }
                parts.append(part)
                return true
            case .refused(_, .outside, _): return false
            case .refused(_, .revoked, _):
                for place in reach.indices where reach[place] == .outside { reach[place] = .revoked }
                if hasAnswered { throw .revoked(path) }
                return false
            case .refused(_, let refusal, let text): throw CoordinationError(refusal, text, path)
            case .waits(_, let pids):
                hasAnswered = true
                progress?(CoordinationProgress(stage: "waiting", done: 0, total: nil, pids: pids))
            case .progress(_, let stage, let done, let total):
                hasAnswered = true
                progress?(CoordinationProgress(stage: stage, done: done, total: total == 0 ? nil : total))
            case .tells, .listening, .presenting, .notPresenting, .asks, .tellsPresenter, .preparing: break
            case nil: try wait(for: client, until: hasAnswered ? deadline : firstAnswerDeadline, awaitsFirstAnswer: !hasAnswered, record)
            }
        }
    }

    /// Requests the claim on a connection of its own. Returns nil if the daemon is dead.
    private func ask(_ record: MountRecord, in directory: String) throws(CoordinationError) -> SessionClient? {
        for _ in 0..<Self.maxFailovers {
            guard let client = try connect(record, directory) else { return nil }
            if (try? client.send(.claim(request))) != nil { return client }
        }
        throw .daemonDied(mountpoint: record.mountpoint)
    }

    /// Returns nil when the daemon is dead.
    private func connect(_ record: MountRecord, _ directory: String) throws(CoordinationError) -> SessionClient? {
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

    private mutating func wait(
        for client: SessionClient, until deadline: Int64?, awaitsFirstAnswer: Bool, _ record: MountRecord
    ) throws(CoordinationError) {
        let look = awaitsFirstAnswer ? nil : deadlockDetector?.next
        var set = PollSet()
        set.add(client.descriptor)
        for part in parts { set.add(part.client.descriptor) }
        let until = [deadline, look].compactMap { $0 }.min()
        let isReady: Bool
        do throws(Errno) {
            if let cancellation {
                isReady = try cancellation.waiting { descriptor throws(Errno) in
                    set.add(descriptor)
                    return try set.wait(until: until)
                }
            } else {
                isReady = try set.wait(until: until)
            }
        } catch {
            throw .failed(error.description)
        }
        if !isReady, let look, deadline.map({ look < $0 }) ?? true {
            if deadlockDetector?.isDeadlocked(before: deadline) == true { throw .deadlock }
            return
        }
        guard isReady else {
            // With less than the whole time-out, it is the caller's time that is over.
            if awaitsFirstAnswer, self.deadline.map({ deadline ?? 0 < $0 }) ?? true {
                throw .failed("the daemon of “\(String(decoding: record.mountpoint, as: UTF8.self))” does not answer")
            }
            throw .timedOut
        }
        if cancellation != nil, set.isReadable(1 + parts.count) { throw .cancelled }
        // Parts already held may be lost during the wait for the rest.
        for part in parts { if let error = part.lost(path) { throw error } }
    }
}
