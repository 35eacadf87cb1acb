import GrantModel
import GrantSystem

/// The time-outs for others who may never answer, in seconds.
struct Timeouts: Sendable {
    /// For the daemon of a mount, to say what it shows.
    var daemon = 0.5
    /// For a filesystem of any origin.
    var look = 1.0
    /// For all answers of presenters together.
    var presenter = 5.0

    /// Runs `look` on a thread of its own, because a system call that waits for a filesystem cannot be cancelled. Returns nil after the
    /// time-out, and abandons the thread.
    func ask<Answer: Sendable>(_ look: @escaping @Sendable () -> Answer) -> Answer? {
        let answer = Lock<Answer?>(nil)
        let answered = Semaphore()
        let work: @Sendable () -> Void = {
            let found = look()
            answer.withLock { $0 = found }
            answered.post()
        }
        // Without a thread, a call that hangs would block the caller without a limit.
        guard let thread = try? WorkerThread.start("look", work) else { return nil }
        thread.detach()
        return answered.wait(until: Clock.deadline(seconds: self.look)) ? answer.withLock { $0 } : nil
    }
}
