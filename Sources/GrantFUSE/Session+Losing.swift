import CGrantSystem
import Glibc
import Synchronization

// A worker that traps, which is a fault of this program, is lost, and nobody else: its caller gets EIO, and its thread stands still for ever. To all others it is
// a worker that hangs in a system call, which is provided for: its slot is taken, its descriptors stay pinned. Not when it holds a lock, for
// which the others would wait; then, and when too many are lost, the process ends. docs/decisions/lost-workers.md.
extension Session {
    /// How many workers of the process have been lost.
    public static var lostWorkers: Int { lost.load(ordering: .relaxed) }

    /// So many at the most: the others are enough to serve on.
    private static let mostLost = 256

    /// From now on a trap costs its worker alone.
    static func surviveTraps() {
        // Touched before it is needed: nothing is made for the first time while a thread traps.
        guard lost.load(ordering: .relaxed) == 0 else { return }
        _ = clinux_trap_install { Session.loseWorker() }
    }

    /// On a thread that has trapped and holds no lock. Answers its request and says whether it may be parked. Takes no lock, no memory and no
    /// reference: whatever the thread was about is not done.
    private static func loseWorker() -> Bool {
        guard let worker = clinux_worker()?.assumingMemoryBound(to: Worker.self), worker.pointee.isServing.load(ordering: .relaxed),
            lost.wrappingAdd(1, ordering: .relaxed).oldValue < mostLost
        else { return false }
        worker.pointee.answerLost()
        worker.pointee.recordEnd()
        worker.pointee.activity.store(.none, ordering: .relaxed)
        return true
    }
}

private let lost = Atomic<Int>(0)

extension Worker {
    /// Answers the request of this worker with EIO if it is open, past the library, whose memory for it stays.
    fileprivate func answerLost() {
        let seen = answer.load(ordering: .sequentiallyConsistent)
        // Even: answered, or handed to somebody else.
        guard seen & 1 == 1, claim(seen >> 1), let head = UnsafeRawPointer(bitPattern: message.load(ordering: .relaxed)) else { return }
        var header: (UInt32, Int32, UInt64) = (16, -EIO, head.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        _ = write(descriptor, &header, 16)
    }
}
