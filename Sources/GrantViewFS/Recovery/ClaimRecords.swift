import CGrantSystem
import Glibc
import GrantSystem

/// A log of claims for crash recovery, in memory that outlives the daemon.
///
/// The last entry of each claim counts. Its content is the caller's. An entry is valid once the
/// word with the log's length includes it, so a partial entry is never read. When most of a log is
/// obsolete, it is rewritten to the other file.
///
/// Locking: its own, while bytes are copied into memory.
public final class ClaimRecords: Sendable {
    private let supervisor: Supervisor
    private let (first, second): (File, File)
    private let state = Lock(State())

    private final class File: Sendable {
        let descriptor: FileDescriptor
        init() throws(Errno) { descriptor = try MemoryFile.of([]) }
    }

    private struct State {
        /// The current descriptions of all claims, by number.
        var live: [UInt64: [UInt8]] = [:]
        var liveBytes = 0
        /// The highest number ever recorded.
        var last: UInt64 = 0
        var usesSecond = false
        var bytes = 0
    }

    /// The header of an entry.
    private struct Head {
        var claim: UInt64
        /// The size of the description, or `removed` for a claim that has ended.
        var count: UInt64
        static let bytes = 16
        static let removed = UInt64.max
    }

    /// A shorter log is not rewritten.
    private static let least = 1 << 20

    init(_ supervisor: Supervisor) throws(Errno) {
        self.supervisor = supervisor
        (first, second) = (try File(), try File())
        supervisor.page.pointee.claims = (first.descriptor.number, second.descriptor.number)
    }

    /// Records the present `description` of a claim, for the next daemon.
    ///
    /// Without memory for it the claim ends with this daemon.
    public func note(_ claim: UInt64, _ description: [UInt8]) {
        state.withLock { state in
            state.liveBytes += description.count - (state.live[claim]?.count ?? 0)
            state.live[claim] = description
            state.last = max(state.last, claim)
            append(claim, description, &state)
        }
    }

    /// Records that a claim has ended. Ignores a claim that was not recorded.
    public func remove(_ claim: UInt64) {
        state.withLock { state in
            guard let description = state.live.removeValue(forKey: claim) else { return }
            state.liveBytes -= description.count
            append(claim, nil, &state)
        }
    }

    /// Records the number of presenters.
    public func note(presenters count: Int) { supervisor.page.pointee.presenter_count = UInt32(clamping: count) }

    private func append(_ claim: UInt64, _ description: [UInt8]?, _ state: inout State) {
        if state.bytes > max(Self.least, 4 * (state.liveBytes + state.live.count * Head.bytes)), rewrite(&state) { return }
        guard let bytes = write(claim, description, at: state.bytes, second: state.usesSecond) else { return }
        state.bytes = bytes
        publish(state)
    }

    /// Rewrites the log to the other file. False without memory: the old log then stays valid.
    private func rewrite(_ state: inout State) -> Bool {
        let second = !state.usesSecond
        // Keeps the highest number, so that no number is used twice.
        var bytes = write(state.last, nil, at: 0, second: second)
        for (claim, description) in state.live {
            guard let place = bytes else { return false }
            bytes = write(claim, description, at: place, second: second)
        }
        guard let bytes else { return false }
        (state.bytes, state.usesSecond) = (bytes, second)
        publish(state)
        return true
    }

    private func publish(_ state: State) {
        let word = UInt64(truncatingIfNeeded: state.bytes) | (state.usesSecond ? 1 << 63 : 0)
        clinux_publish_claims(supervisor.page, word)
    }

    /// Writes an entry. Returns the position behind it, or nil without memory.
    private func write(_ claim: UInt64, _ description: [UInt8]?, at place: Int, second: Bool) -> Int? {
        let head = Head(claim: claim, count: description.map { UInt64(truncatingIfNeeded: $0.count) } ?? Head.removed)
        var entry = withUnsafeBytes(of: head) { Array($0) }
        entry += description ?? []
        var done = 0
        while done < entry.count {
            let number = (second ? self.second : first).descriptor.number
            let result = entry.withUnsafeBytes { pwrite(number, $0.baseAddress! + done, $0.count - done, off_t(clamping: place + done)) }
            if result < 0, errno == EINTR { continue }
            if result <= 0 { return nil }
            done += result
        }
        return place + entry.count
    }

    // MARK: reading after a crash

    /// The records of a crashed daemon.
    ///
    /// Each claim has its description. Claims are ordered by number. `last` is the highest number
    /// ever used, and `presenterCount` the number of presenters.
    public struct Left: Sendable {
        public var claims: [(number: UInt64, description: [UInt8])] = []
        public var last: UInt64 = 0
        public var presenterCount = 0
    }

    /// Reads the log of a crashed daemon.
    ///
    /// - Throws: EBADMSG if the log is malformed.
    public static func read(from left: CrashedDescriptors) throws(Errno) -> Left {
        let (page, word) = (left.page, left.page.pointee.claims_valid)
        let count = Int(truncatingIfNeeded: word & ~(1 << 63))
        var result = Left()
        result.presenterCount = Int(clamping: page.pointee.presenter_count)
        var reader = try HandoverReader(
            file: try left.take(word >> 63 == 1 ? page.pointee.claims.1 : page.pointee.claims.0), count: count, descriptors: [])
        var live: [UInt64: [UInt8]] = [:]
        while !reader.isAtEnd {
            let (claim, size): (UInt64, UInt64) = (try reader.take(), try reader.take())
            result.last = max(result.last, claim)
            live[claim] = size == Head.removed ? nil : try reader.takeBytes(size)
        }
        result.claims = live.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return result
    }
}
