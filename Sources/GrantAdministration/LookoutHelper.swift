import GrantBookmarks
import GrantControl
import Glibc
import GrantModel
import GrantSystem

/// A process that looks at directories for this one.
struct LookoutHelper: ~Copyable {
    /// A sign of life, in the place of an answer.
    fileprivate static let tick: [UInt8] = [0]
    /// The same, of one that goes to read the mount table: the kernel lets it wait while others mount and unmount, which asks no filesystem anything.
    fileprivate static let readingMounts: [UInt8] = [0, 1]
    /// How long the process may take to start, or stand runnable, on a machine that has too much to do: nanoseconds. No filesystem is to blame for that.
    private static let startingTime: Int64 = 60_000_000_000
    /// Into how many turns a wait is parted.
    private static let turns = 10
    /// Questions that are sent at once.
    private static let batch = 5_000

    private let socket: UnixSocket
    private let pid: Int32

    init(_ program: String, _ arguments: [String]) throws(Errno) {
        let pair = try UnixSocket.pair()
        pid = try ChildProcess.spawn(program, arguments: arguments.map { Array($0.utf8) }, detached: true, descriptors: [pair.other.number])
        socket = pair.closeOther()
    }

    /// Gives the answers as they come. It ends early when there is none for a while, or when the process has ended.
    func ask(_ questions: ArraySlice<Question>, _ answered: (Answer) -> Void) {
        guard (try? Frame.receive(over: socket, deadline: Clock.monotonic + LookoutHelper.startingTime)) != nil else { return }
        var rest = questions
        while !rest.isEmpty {
            let batch = rest.prefix(LookoutHelper.batch)
            var writer = BinaryWriter()
            for question in batch { question.write(to: &writer) }
            guard (try? Frame.send(writer.bytes, over: socket, deadline: Clock.monotonic + Lookout.patience)) != nil else { return }
            for _ in batch {
                guard let answer = next() else { return }
                answered(answer)
            }
            rest = rest.dropFirst(batch.count)
        }
    }

    private func next() -> Answer? {
        var mayWait = false
        while waitForWord(mayWait), let bytes = try? Frame.receive(over: socket, deadline: Clock.monotonic + LookoutHelper.startingTime) {
            mayWait = bytes == LookoutHelper.readingMounts
            if mayWait || bytes == LookoutHelper.tick { continue }
            var reader = BinaryReader(bytes[...])
            return try? Answer.read(from: &reader)
        }
        return nil
    }

    /// False when a filesystem has kept the process waiting for as long as one may.
    ///
    /// That is told by turns and not by the clock: on a machine with too much to do this process stands for a while, or the other one waits for a
    /// processor, and no filesystem is to blame. `mayWait`: it waits for something else.
    private func waitForWord(_ mayWait: Bool) -> Bool {
        let end = Clock.monotonic + LookoutHelper.startingTime
        var left = LookoutHelper.turns
        while left > 0, Clock.monotonic < end {
            var set = PollSet()
            set.add(socket.number)
            do throws(Errno) {
                if try set.wait(until: Clock.monotonic + Lookout.patience / Int64(LookoutHelper.turns)) { return true }
            } catch {
                return false
            }
            if !mayWait, !ProcessState.isRunnable(pid) { left -= 1 }
        }
        return false
    }

    /// Has it end as soon as it can, which may be never: it is not waited for here.
    consuming func end() {
        let pid = pid
        kill(pid, SIGKILL)
        // So that none is left behind in a process that lives on. Without a thread the parent's end does the same.
        try? WorkerThread.start("reap") { _ = try? ChildProcess.wait(pid) }.detach()
    }
}

extension Lookout {
    /// What the program of `helper` does: answers what comes over the descriptor, until the other end is closed.
    public static func serve(descriptor number: Int32) {
        // Whoever reads what the asking process says must not wait for this one.
        if let null = try? FileDescriptor.open("/dev/null".utf8, O_RDWR) { _ = dup2(null.number, 2) }
        let socket = UnixSocket(connected: FileDescriptor(owning: number))
        let service = LookoutService(socket)
        while service.serveBatch() {}
    }
}

private final class LookoutService {
    private let socket: UnixSocket
    private var lastSign: Int64 = 0

    init(_ socket: consuming UnixSocket) {
        self.socket = socket
        send(LookoutHelper.tick)
    }

    /// False at the end.
    func serveBatch() -> Bool {
        guard let bytes = try? Frame.receive(over: socket, deadline: .max) else { return false }
        var reader = BinaryReader(bytes[...])
        // As everything mounted was found anew for each batch, a change meanwhile is seen.
        let progress = { [unowned self] in
            if Clock.monotonic - lastSign > Lookout.patience / 10 { send(LookoutHelper.tick) }
        }
        let resolver = BookmarkResolver(
            progress: progress, readingMounts: { [unowned self] in send($0 ? LookoutHelper.readingMounts : LookoutHelper.tick) })
        while !reader.isAtEnd {
            guard let question = try? Question.read(from: &reader) else { return false }
            var writer = BinaryWriter()
            question.answer(resolver, progress: progress).write(to: &writer)
            guard send(writer.bytes) else { return false }
        }
        return true
    }

    @discardableResult
    private func send(_ bytes: [UInt8]) -> Bool {
        lastSign = Clock.monotonic
        return (try? Frame.send(bytes, over: socket, deadline: .max)) != nil
    }
}
