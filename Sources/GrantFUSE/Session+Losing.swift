import CGrantSystem
import Glibc
import Synchronization

// Survives traps of workers. A worker that traps (a bug of this program) is lost alone: its caller gets EIO and its thread stops
// for ever. To everybody else it looks like a worker that hangs in a system call, which is provided for: its slot stays taken, its
// descriptors pinned. If it holds a lock, for which others would wait, or if too many are lost, the process ends. See
// docs/decisions/worker-loop.md.
extension Session {
    /// How many workers of the process are lost.
    public static var lostWorkers: Int { lost.load(ordering: .relaxed) }

    /// At most so many: the others suffice to serve.
    private static let mostLost = 256

    /// Makes a trap cost only its worker, from now on.
    static func surviveTraps() {
        // Touched in advance: nothing may be initialized for the first time while a thread traps.
        guard lost.load(ordering: .relaxed) == 0 else { return }
        _ = clinux_trap_install { Session.loseWorker() }
    }

    /// Runs on a thread that trapped and holds no lock. Answers its request; returns whether the thread may be parked. Takes no
    /// lock, no memory and no reference: whatever the thread was doing is incomplete.
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
    /// Answers the worker's request with EIO if it is open, bypassing the library, whose memory for it is leaked.
    fileprivate func answerLost() {
        let seen = answer.load(ordering: .sequentiallyConsistent)
        // Even: answered, or taken by another thread.
        guard seen & 1 == 1, claim(seen >> 1), let head = UnsafeRawPointer(bitPattern: message.load(ordering: .relaxed)) else { return }
        var header: (UInt32, Int32, UInt64) = (16, -EIO, head.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        _ = write(descriptor, &header, 16)
    }
}
