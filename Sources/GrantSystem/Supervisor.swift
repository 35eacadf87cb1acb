import CGrantSystem
import Glibc

/// A process that shares a daemon's descriptor table: `clinux_supervise`.
///
/// So nothing is closed when the daemon dies. It then starts another daemon.
public final class Supervisor: @unchecked Sendable {
    // Sendable: one thread at a time writes the page, except for its atomic fields.
    /// The page that supervisor and daemon share.
    public let page: UnsafeMutablePointer<clinux_supervised>
    public let process: Int32
    private let file: FileDescriptor
    private static var bytes: Int { Int(clamping: clinux_supervised_size()) }

    /// Starts the supervisor. Call it before there are threads.
    ///
    /// - Parameters:
    ///   - arguments: Of this process's program, to start it again.
    ///   - goodbye: The byte that tells the keeper that another daemon serves.
    ///   - crashesAllowed: How many deaths within a minute are followed by a restart.
    ///   - patience: How long a restarted daemon may take to serve, in seconds.
    ///   - longestAlone: How long the mount may be without a daemon, in seconds.
    ///   - previous: The page that this daemon's own supervisor left.
    ///   - locked: Files whose locks by the daemon must end with it.
    public init(
        arguments: [String], goodbye: UInt8, crashesAllowed: UInt32, patience: UInt32, longestAlone: UInt32,
        locked: [String], previous: UnsafeMutablePointer<clinux_supervised>? = nil
    )
        throws(Errno)
    {
        file = try MemoryFile.of([])
        guard ftruncate(file.number, off_t(clamping: Self.bytes)) == 0 else { throw Errno(errno) }
        let mapped = mmap(nil, Self.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0)
        guard let mapped, mapped != MAP_FAILED else { throw Errno(errno) }
        page = mapped.bindMemory(to: clinux_supervised.self, capacity: 1)
        if let previous {
            page.pointee.crashes = previous.pointee.crashes
            page.pointee.crashed = previous.pointee.crashed
            Self.recordSuspects(previous, on: page)
        }
        page.pointee.page = file.number
        page.pointee.keeper = -1
        page.pointee.crashes_allowed = crashesAllowed
        (page.pointee.patience, page.pointee.longest_alone) = (patience, longestAlone)
        let words = arguments.map { strdup($0) } + [nil]
        let paths = locked.map { strdup($0) } + [nil]
        defer { for word in words + paths { free(word) } }
        process = try Errno.check(clinux_supervise(page, previous, words, CChar(bitPattern: goodbye), paths))
    }

    /// The requests that were running when the daemon of `page`, or an earlier one, died.
    ///
    /// Each has the number of daemons that died with it. Those of the latest death come first. A
    /// request that was not sent again yet may still be. An answered request is never sent again,
    /// because numbers are not reused.
    public static func suspects(after page: UnsafeMutablePointer<clinux_supervised>) -> [clinux_suspect] {
        let old = UnsafeBufferPointer(
            start: clinux_supervised_suspects(page),
            count: min(Int(truncatingIfNeeded: CLINUX_SUSPECTS), Int(clamping: page.pointee.suspect_count)))
        let requests = UnsafeBufferPointer(
            start: clinux_supervised_requests(page), count: Int(truncatingIfNeeded: CLINUX_SUPERVISED_WORKERS))
        var suspects: [clinux_suspect] = []
        for request in requests where request.unique != 0 {
            let before = old.first { $0.unique == request.unique }
            suspects.append(clinux_suspect(unique: request.unique, deaths: (before?.deaths ?? 0) + 1, opcode: request.opcode))
        }
        let newest = Set(suspects.map(\.unique))
        return suspects + old.filter { !newest.contains($0.unique) }
    }

    private static func recordSuspects(
        _ previous: UnsafeMutablePointer<clinux_supervised>, on page: UnsafeMutablePointer<clinux_supervised>
    ) {
        let suspects = suspects(after: previous).prefix(Int(truncatingIfNeeded: CLINUX_SUSPECTS))
        for (place, suspect) in suspects.enumerated() { clinux_supervised_suspects(page)[place] = suspect }
        page.pointee.suspect_count = UInt32(clamping: suspects.count)
    }

    /// Sets whether the supervisor restarts the daemon when it dies.
    public func arm(_ isArmed: Bool) { clinux_arm(page, isArmed) }
}

/// The descriptors that a crashed daemon left with its supervisor, for the next daemon.
public final class CrashedDescriptors {
    private let socket: UnixSocket
    /// The crashed daemon's page. Only the supervisor still writes to it.
    public let page: UnsafeMutablePointer<clinux_supervised>
    /// In nanoseconds.
    private static let patience: Int64 = 20_000_000_000

    /// `socket`: the connection to the supervisor.
    public init(socket number: Int32) throws(Errno) {
        socket = UnixSocket(connected: FileDescriptor(owning: number))
        try socket.send([UInt8(truncatingIfNeeded: CLINUX_SUPERVISOR_PAGE)], deadline: Clock.monotonic + Self.patience)
        let received = try socket.receive(descriptors: 1, deadline: Clock.monotonic + Self.patience)
        let file = FileDescriptor(owning: received[0])
        guard try file.status().st.st_size >= off_t(clamping: clinux_supervised_size()) else { throw Errno(EBADMSG) }
        let mapped = mmap(nil, clinux_supervised_size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0)
        guard let mapped, mapped != MAP_FAILED else { throw Errno(errno) }
        page = mapped.bindMemory(to: clinux_supervised.self, capacity: 1)
    }

    /// Fetches descriptors by their numbers in the crashed daemon, in this order.
    ///
    /// The caller owns them.
    public func take(_ numbers: [Int32]) throws(Errno) -> [Int32] {
        if numbers.isEmpty { return [] }
        let deadline = Clock.monotonic + Self.patience
        var words = [UInt8(truncatingIfNeeded: CLINUX_SUPERVISOR_DESCRIPTORS)]
        withUnsafeBytes(of: UInt32(clamping: numbers.count)) { words += $0 }
        try socket.send(words, deadline: deadline)
        var taken: [Int32] = []
        do throws(Errno) {
            for start in stride(from: 0, to: numbers.count, by: Int(truncatingIfNeeded: CLINUX_DESCRIPTORS_AT_ONCE)) {
                let batch = Array(numbers[start..<min(numbers.count, start + Int(truncatingIfNeeded: CLINUX_DESCRIPTORS_AT_ONCE))])
                try socket.send(batch.withUnsafeBytes { Array($0) }, deadline: deadline)
                taken += try socket.receive(descriptors: batch.count, deadline: deadline)
            }
            return taken
        } catch {
            for descriptor in taken { close(descriptor) }
            throw error
        }
    }

    public func take(_ number: Int32) throws(Errno) -> FileDescriptor { FileDescriptor(owning: try take([number])[0]) }

    /// Takes over the mount atomically.
    ///
    /// If the caller dies before, the supervisor starts another daemon. After that, the caller's
    /// own supervisor does. Returns false if the supervisor has given up on the caller, which then
    /// must not serve.
    public func take() -> Bool { clinux_take_from(page) }

    /// Ends the supervisor.
    ///
    /// The mount is served again, or it will not be and everything is closed.
    public func end(isServing: Bool) {
        let word = isServing ? CLINUX_SUPERVISOR_SERVING : CLINUX_SUPERVISOR_DECLINED
        _ = try? socket.sendSome([UInt8(truncatingIfNeeded: word)])
    }
}
