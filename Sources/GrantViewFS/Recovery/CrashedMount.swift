import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantLocks
import GrantModel
import GrantSystem
import GrantViewTree

/// A mount whose daemon crashed.
///
/// Reads the state that the daemon left in memory, and writes it in the form in which a living
/// daemon hands it over (`ViewFS.handOver`).
///
/// Uncertain state is not taken over. A scope that was withdrawn, or that no longer matches the
/// store, stays withdrawn. A request that may have been carried out is not carried out again.
public struct CrashedMount {
    private let left: CrashedDescriptors
    private let scopes: [RecoveryRecords.ScopeRecord]

    /// The scopes that continue, by their grants.
    public let live: [(grant: GrantID, isReadOnly: Bool)]
    /// The number of withdrawn scopes. They follow the live ones.
    public let closedCount: Int

    /// State that never changes after the mount, written by the daemon (`ViewFS.writeFixed`).
    public struct Fixed: Sendable {
        let device: Int32
        let negotiation: Negotiation
        let leavesAccessTimes: Bool
        let leavesDirectoryAccessTimes: Bool

        public init(from state: inout HandoverReader) throws(Errno) {
            device = try state.take()
            negotiation = Negotiation(request: try state.takeBytes(), answer: try state.takeBytes())
            (leavesAccessTimes, leavesDirectoryAccessTimes) = (try state.takeFlag(), try state.takeFlag())
        }
    }

    /// Reads the scopes.
    ///
    /// - Parameter isLive: Whether a grant is active in an activation.
    /// - Throws: EPROTO if the daemon died in a state that cannot be read.
    public init(_ left: CrashedDescriptors, isLive: (GrantID, Int64) -> Bool) throws(Errno) {
        self.left = left
        let chunks = try MappedChunks<RecoveryRecords.ScopeRecord>(of: try left.take(left.page.pointee.scopes), withElements: true)
        var (live, closed): ([RecoveryRecords.ScopeRecord], [RecoveryRecords.ScopeRecord]) = ([], [])
        chunks.forEach { _, record in
            let grant = GrantID(high: record.pointee.grant.high, low: record.pointee.grant.low)
            // Of two scopes of one grant the later one counts.
            let isMeant = record.pointee.isLive && isLive(grant, record.pointee.activation)
            if isMeant { live.append(record.pointee) } else { closed.append(record.pointee) }
        }
        live.sort { $0.scope > $1.scope }
        var seen = Set<GrantID>()
        for record in live where !seen.insert(GrantID(high: record.grant.high, low: record.grant.low)).inserted { closed.append(record) }
        let closedNumbers = Set(closed.map(\.scope))
        live.removeAll { closedNumbers.contains($0.scope) }
        self.live = live.map { (GrantID(high: $0.grant.high, low: $0.grant.low), $0.isReadOnly) }
        closedCount = closed.count
        for place in closed.indices where closed[place].isLive { closed[place].withdrawal = .begun }
        scopes = live + closed
    }

    /// Writes the state in the form that `ViewFS.takeOver` reads.
    ///
    /// The written descriptors are those of the crashed daemon.
    public func write(_ fixed: Fixed, to state: inout HandoverWriter) throws(Errno) {
        let page = left.page
        guard page.pointee.next_scope > 0, page.pointee.device_count <= UInt32(CLINUX_SUPERVISED_DEVICES) else { throw Errno(EPROTO) }
        // With a supervisor the kernel sends OPEN: it does not open files by itself.
        state.put(flag: false)
        state.put(descriptor: fixed.device)
        state.put(bytes: fixed.negotiation.request)
        state.put(bytes: fixed.negotiation.answer)
        state.put(page.pointee.next_scope)
        // It is unknown whether a file with a plain set-gid bit was met, so writes check.
        state.put(flag: true)
        state.put(flag: fixed.leavesAccessTimes)
        state.put(flag: fixed.leavesDirectoryAccessTimes)
        state.put(0 as UInt64)
        let openings = try CrashedOpenFiles.read(
            files: try left.take(page.pointee.files), directories: try left.take(page.pointee.directories))
        let devices = UnsafeBufferPointer(start: clinux_supervised_devices(page), count: Int(truncatingIfNeeded: page.pointee.device_count))
        try NodeTree.recover(
            devices: Array(devices), scopes: scopes.map(\.left), openings: openings, from: try left.take(page.pointee.nodes), to: &state)
        try openings.writeFiles(to: &state)
        try openings.writeDirectories(to: &state)
        state.put(UInt64(truncatingIfNeeded: scopes.count))
        for scope in scopes { scope.handOver(to: &state) }
        // Unreported losses, and dropped writes: none are known.
        state.put(0 as UInt64)
        state.put(0 as UInt64)
        // The root: its names count as changed now.
        state.put(Clock.realtime)
        state.put(0 as UInt64)
        try writeLocks(of: openings.handles, to: &state)
        // Without a journal there are none: the kernel resends all requests.
        let device = try left.take(fixed.device)
        let unserved = try CrashedRequests.take(page, device: device.number)
        for messages in [unserved.served, unserved.refused] {
            state.put(UInt64(truncatingIfNeeded: messages.count))
            for message in messages { state.put(bytes: message) }
        }
    }

    // MARK: locks

    /// Writes the locks.
    ///
    /// They still belong to the open file descriptions, so the kernel can list them.
    private func writeLocks(of handles: Set<UInt64>, to state: inout HandoverWriter) throws(Errno) {
        let chunks = try MappedChunks<LockRecord>(of: try left.take(left.page.pointee.locks), withElements: true)
        var records: [LockRecord] = []
        chunks.forEach { _, record in records.append(record.pointee) }
        let known = Set(scopes.map(\.scope))
        // Locks taken through a file that is released end with it.
        records.removeAll { !known.contains($0.scope) || !handles.contains($0.handle) }
        let descriptors = try left.take(records.map(\.descriptor))
        defer { for descriptor in descriptors { close(descriptor) } }
        // Owners without locks are skipped.
        let held = zip(records, descriptors).map { ($0, LockedRange.all(through: $1)) }.filter { !$1.isEmpty }
        state.put(UInt64(truncatingIfNeeded: held.count))
        for (record, ranges) in held {
            state.put(record.scope)
            state.put(record.node)
            state.put(record.owner)
            state.put(record.handle)
            state.put(record.pid)
            state.put(record.uid)
            state.put(descriptor: record.descriptor)
            state.put(UInt64(truncatingIfNeeded: ranges.count))
            for range in ranges {
                state.put(range.start)
                state.put(range.end)
                state.put(flag: range.isExclusive)
            }
        }
    }
}

extension LockedRange {
    /// The ranges locked through an open file description (proc(5), /proc/PID/fdinfo), in order.
    static func all(through descriptor: Int32) -> [LockedRange] {
        let text = (try? File.contents(of: Array("/proc/self/fdinfo/\(descriptor)".utf8))) ?? []
        let ranges = text.split(separator: UInt8(ascii: "\n")).compactMap { line -> LockedRange? in
            // lock:	1: OFDLCK ADVISORY  WRITE -1 08:02:1234 0 EOF
            let words = String(decoding: line, as: UTF8.self).split { $0 == " " || $0 == "\t" }
            guard words.count >= 9, words[0] == "lock:", words[2] == "OFDLCK", let start = Int64(words[7], radix: 10) else { return nil }
            var range = LockedRange(start: start, length: 0, isExclusive: words[4] == "WRITE")
            range.end = Int64(words[8], radix: 10) ?? .max
            return range
        }
        return ranges.sorted { $0.start < $1.start }
    }
}

extension RecoveryRecords.ScopeRecord {
    /// Whether no withdrawal had begun.
    fileprivate var isLive: Bool { withdrawal == .none || withdrawal == .offered }

    fileprivate var left: CrashedScope {
        CrashedScope(
            scope: scope, base: !isLive || base < 0 ? nil : base, opensByHandle: opensByHandle, crossesMounts: crossesMounts,
            usesCallerGroups: usesCallerGroups, root: rootNode, rootKey: rootKey)
    }

    private var refusals: Refusals {
        switch withdrawal {
        case .none: isReadOnly ? .readOnly : .none
        case .begun: .flushing
        case .done: .shut
        case .offered: .offered
        }
    }

    /// Writes a scope as `ViewFS.handOver` does.
    fileprivate func handOver(to state: inout HandoverWriter) {
        state.put(scope)
        state.put(grant.high)
        state.put(grant.low)
        state.put(activation)
        state.put(rootNode)
        state.put(rootStatus)
        state.put(mount)
        state.put(flag: isLocal)
        state.put(flag: isMoveTold)
        state.put(flag: isReadOnly)
        // A withdrawal or narrowing that was running is carried out again.
        state.put(refusals.rawValue)
        state.put(flag: withdrawal == .done)
        // Whether its descriptors were released is determined again.
        state.put(flag: false)
        state.put(0 as Int64)
        state.put(flag: false)
        state.put(flag: isReleased)
        state.put(flag: false)
        for _ in 0..<3 { state.put(0 as UInt64) }
    }
}

extension ViewFS {
    /// Writes the state that never changes after the mount, for crash recovery.
    ///
    /// Call it once the view is mounted.
    public func writeFixed(to state: inout HandoverWriter) {
        guard let session else { return }
        state.put(session.device)
        state.put(bytes: session.negotiation.request)
        state.put(bytes: session.negotiation.answer)
        state.put(flag: leavesAccessTimes.load(ordering: .relaxed))
        state.put(flag: leavesDirectoryAccessTimes.load(ordering: .relaxed))
    }
}
