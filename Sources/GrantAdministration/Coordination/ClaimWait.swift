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

    /// The client's number for it: one claim has a connection of its own.
    static let number: UInt64 = 1

    /// Why it is lost; nil while it is held. Takes what has come and never waits.
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

/// Takes one claim in one mount after the other.
struct ClaimWait {
    let request: ClaimRequest
    let deadline: Int64?
    let cancellation: CoordinationCancellation?
    let progress: ((CoordinationProgress) -> Void)?
    /// nil where one mount sees all.
    var circle: CircleOfWaits?
    var parts: [ClaimPart] = []

    /// So many daemons may die one after the other, each with the claim.
    private static let mostTurns = 10
    /// How long a daemon may take to say whether there is anything to wait for: nanoseconds.
    private static let patience: Int64 = 10_000_000_000
    /// So long at least, however short the caller's time is, because who waits for nothing at all is to get what is free.
    private static let leastPatience: Int64 = 2_000_000_000

    /// Until when the first word is waited for, `Clock.monotonic`.
    private func silence() -> Int64 {
        let now = Clock.monotonic
        return min(now + Self.patience, max(deadline ?? .max, now + Self.leastPatience))
    }

    private var path: [UInt8] { request.items.first?.path ?? [] }

    /// Waits for the claim in one mount. False when the mount leads nowhere, and says so; `reach` is noted either way.
    mutating func take(_ record: MountRecord, in directory: String, _ reach: inout [ItemReach]) throws(CoordinationError) -> Bool {
        guard var client = try ask(record, in: directory) else { return false }
        var (silence, hasHeard, turns) = (self.silence(), false, 0)
        while true {
            let news: SessionNews?
            do throws(ControlClient.Failure) {
                news = try client.next()
            } catch {
                // Another daemon may have followed, and does not know of it or has said that it does not.
                turns += 1
                guard turns < Self.mostTurns, record.isServed(in: directory), let other = try ask(record, in: directory) else {
                    throw .daemonDied(mountpoint: record.mountpoint)
                }
                // It is to say something by itself, whatever the one before has said.
                (client, silence, hasHeard) = (other, self.silence(), false)
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
                if hasHeard { throw .revoked(path) }
                return false
            case .refused(_, let refusal, let text): throw CoordinationError(refusal, text, path)
            case .waits(_, let pids):
                hasHeard = true
                progress?(CoordinationProgress(stage: "waiting", done: 0, total: nil, pids: pids))
            case .progress(_, let stage, let done, let total):
                hasHeard = true
                progress?(CoordinationProgress(stage: stage, done: done, total: total == 0 ? nil : total))
            case .tells, .listening, .presenting, .notPresenting, .asks, .tellsPresenter, .preparing: break
            case nil: try wait(for: client, until: hasHeard ? deadline : silence, isSilent: !hasHeard, record)
            }
        }
    }

    /// Asks for the claim on a connection of its own. nil when the daemon is dead.
    private func ask(_ record: MountRecord, in directory: String) throws(CoordinationError) -> SessionClient? {
        for _ in 0..<Self.mostTurns {
            guard let client = try connect(record, directory) else { return nil }
            if (try? client.send(.claim(request))) != nil { return client }
        }
        throw .daemonDied(mountpoint: record.mountpoint)
    }

    /// nil when the daemon is dead.
    private func connect(_ record: MountRecord, _ directory: String) throws(CoordinationError) -> SessionClient? {
        let limit = silence()
        while true {
            do throws(ControlClient.Failure) {
                return try SessionClient(socket: record.socket, directory: directory, deadline: limit)
            } catch {
                switch error {
                case .absent, .hungUp:
                    if !record.isServed(in: directory) { return nil }
                    // It is about to listen, or to end.
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
        for client: SessionClient, until deadline: Int64?, isSilent: Bool, _ record: MountRecord
    ) throws(CoordinationError) {
        let look = isSilent ? nil : circle?.next
        var set = PollSet()
        set.add(client.descriptor)
        for part in parts { set.add(part.client.descriptor) }
        if let cancellation { set.add(cancellation.descriptor) }
        let isReady: Bool
        do throws(Errno) {
            isReady = try set.wait(until: [deadline, look].compactMap { $0 }.min())
        } catch {
            throw .failed(error.description)
        }
        if !isReady, let look, deadline.map({ look < $0 }) ?? true {
            if circle?.isClosed(before: deadline) == true { throw .deadlock }
            return
        }
        guard isReady else {
            // With less than the whole time it is the caller's that is over.
            if isSilent, self.deadline.map({ deadline ?? 0 < $0 }) ?? true {
                throw .failed("the daemon of “\(String(decoding: record.mountpoint, as: UTF8.self))” does not answer")
            }
            throw .timedOut
        }
        if cancellation != nil, set.isReadable(1 + parts.count) { throw .cancelled }
        // What is held already may be lost while the rest is waited for.
        for part in parts { if let error = part.lost(path) { throw error } }
    }
}
