import GrantBookmarks
import GrantControl
import Glibc
import GrantModel
import GrantSystem

/// A helper process that looks at directories for this one.
final class ProbeHelper: Sendable {
    /// A heartbeat, sent in the place of an answer.
    fileprivate static let heartbeat: [UInt8] = [0]
    /// A heartbeat sent before the mount table is read: the kernel blocks that while others mount and unmount, but it waits for no
    /// filesystem.
    fileprivate static let readingMounts: [UInt8] = [0, 1]
    /// How long the process may take to start, or be runnable without running, on an overloaded machine: nanoseconds. That is not a
    /// filesystem's fault.
    private static let startTimeout: Int64 = 60_000_000_000
    /// The number of intervals in a wait.
    private static let intervals = 10
    /// The number of requests sent in one batch.
    private static let batch = 5_000

    private let socket: UnixSocket
    private let pid: Int32
    /// Whether it has reported its start.
    private let hasBegun = Lock(false)

    /// A child of this process that calls `DirectoryProbe.serve` on the other end.
    init(_ socket: consuming UnixSocket, pid: Int32) {
        self.socket = socket
        self.pid = pid
    }

    init(_ program: ProgramFile, _ arguments: [String]) throws(Errno) {
        let pair = try UnixSocket.pair()
        pid = try ChildProcess.spawn(program, arguments: arguments.map { Array($0.utf8) }, detached: true, descriptors: [pair.other.number])
        socket = pair.closeOther()
    }

    /// Passes on the answers as they come. Ends early if none comes for a while, or the process has ended. Throws ENOEXEC if the process
    /// does not start: no filesystem is to blame.
    func ask(_ requests: ArraySlice<ProbeRequest>, _ answered: (ProbeAnswer) -> Void) throws(Errno) {
        if !hasBegun.withLock({ $0 }) {
            do throws(Errno) {
                _ = try Frame.receive(over: socket, deadline: Clock.monotonic + ProbeHelper.startTimeout)
            } catch {
                // On an overloaded machine it may be late. A look by this process could hang then.
                if error == Errno(ETIMEDOUT) { return }
                end()
                throw Errno(ENOEXEC)
            }
            hasBegun.withLock { $0 = true }
        }
        var rest = requests
        while !rest.isEmpty {
            let batch = rest.prefix(ProbeHelper.batch)
            var writer = BinaryWriter()
            for question in batch { question.write(to: &writer) }
            guard (try? Frame.send(writer.bytes, over: socket, deadline: Clock.monotonic + DirectoryProbe.answerTimeout)) != nil else {
                return
            }
            for _ in batch {
                guard let answer = next() else { return }
                answered(answer)
            }
            rest = rest.dropFirst(batch.count)
        }
    }

    private func next() -> ProbeAnswer? {
        var mayWait = false
        while waitForMessage(mayWait), let bytes = try? Frame.receive(over: socket, deadline: Clock.monotonic + ProbeHelper.startTimeout) {
            mayWait = bytes == ProbeHelper.readingMounts
            if mayWait || bytes == ProbeHelper.heartbeat { continue }
            var reader = BinaryReader(bytes[...])
            return try? ProbeAnswer.read(from: &reader)
        }
        return nil
    }

    /// Returns false when a filesystem has blocked the process for too long.
    ///
    /// It counts intervals instead of time: on an overloaded machine this process or the helper may get no processor for a while, and
    /// no filesystem is to blame. `mayWait`: it waits for something else.
    private func waitForMessage(_ mayWait: Bool) -> Bool {
        let end = Clock.monotonic + ProbeHelper.startTimeout
        var left = ProbeHelper.intervals
        while left > 0, Clock.monotonic < end {
            var set = PollSet()
            set.add(socket.number)
            do throws(Errno) {
                if try set.wait(until: Clock.monotonic + DirectoryProbe.answerTimeout / Int64(ProbeHelper.intervals)) { return true }
            } catch {
                return false
            }
            if !mayWait, !ProcessState.isRunnable(pid) { left -= 1 }
        }
        return false
    }

    /// Asks the process to end as soon as it can, which may be never. It does not wait for that.
    func end() {
        let pid = pid
        kill(pid, SIGKILL)
        // Reaped by a thread, so that no zombie is left in a long-lived process. Without a thread the parent's end does the same.
        try? WorkerThread.start("reap") { _ = try? ChildProcess.wait(pid) }.detach()
    }
}

/// A child of this process that waits for something else and looks at directories meanwhile: one process less is started.
public final class StandingProbe: Sendable {
    private enum State {
        case free(ProbeHelper)
        case lent
        case ended
    }

    private let state: Lock<State>

    /// `socket`: the other end of that on which the child calls `DirectoryProbe.serve`. Its standard error must be at /dev/null.
    public init(_ socket: consuming UnixSocket, pid: Int32) { state = Lock(.free(ProbeHelper(socket, pid: pid))) }

    /// Ends the child's `serve`. Returns false if a filesystem that hangs holds the child up: it was killed then and is reaped when it can
    /// be.
    public func end() -> Bool {
        state.withLock { state in
            defer { state = .ended }
            if case .lent = state { return false }
            return true
        }
    }

    /// Returns it to one caller at a time, and to none after one that has not put it back.
    func take() -> ProbeHelper? {
        state.withLock { state in
            guard case .free(let helper) = state else { return nil }
            state = .lent
            return helper
        }
    }

    func putBack(_ helper: ProbeHelper) { state.withLock { $0 = .free(helper) } }
}

extension DirectoryProbe {
    /// Runs in the helper process: answers the requests on the descriptor until its other end is closed.
    public static func serve(descriptor number: Int32) {
        // A reader of the parent's standard error must not wait for this process.
        if let null = try? FileDescriptor.open("/dev/null".utf8, O_RDWR) { _ = dup2(null.number, 2) }
        let socket = UnixSocket(connected: FileDescriptor(owning: number))
        let service = ProbeService(socket)
        while service.serveBatch() {}
    }
}

private final class ProbeService {
    private let socket: UnixSocket
    private var lastHeartbeat: Int64 = 0

    init(_ socket: consuming UnixSocket) {
        self.socket = socket
        send(ProbeHelper.heartbeat)
    }

    /// Returns false at the end.
    func serveBatch() -> Bool {
        guard let bytes = try? Frame.receive(over: socket, deadline: .max) else { return false }
        var reader = BinaryReader(bytes[...])
        // The mount table is read again for each batch, so changes are seen.
        let progress = { [unowned self] in
            if Clock.monotonic - lastHeartbeat > DirectoryProbe.answerTimeout / 10 { send(ProbeHelper.heartbeat) }
        }
        let resolver = BookmarkResolver(
            progress: progress, readingMounts: { [unowned self] in send($0 ? ProbeHelper.readingMounts : ProbeHelper.heartbeat) })
        while !reader.isAtEnd {
            guard let question = try? ProbeRequest.read(from: &reader) else { return false }
            var writer = BinaryWriter()
            question.answer(resolver, progress: progress).write(to: &writer)
            guard send(writer.bytes) else { return false }
        }
        return true
    }

    @discardableResult
    private func send(_ bytes: [UInt8]) -> Bool {
        lastHeartbeat = Clock.monotonic
        return (try? Frame.send(bytes, over: socket, deadline: .max)) != nil
    }
}
