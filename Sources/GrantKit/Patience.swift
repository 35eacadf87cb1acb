import GrantModel
import GrantSystem

/// How long a program waits for those who may never answer, in seconds.
struct Patience: Sendable {
    /// For the daemon of a mount, which is to say what it shows.
    var daemon = 0.5
    /// For a filesystem that may belong to anybody.
    var look = 1.0
    /// For a presenter's answer, all in all.
    var presenter = 5.0

    /// Looks at what may never answer: a system call that waits for a filesystem cannot be given up. Runs `look` on a thread of its own; nil when it has
    /// not come back in time. The thread is then left to itself.
    func ask<Answer: Sendable>(_ look: @escaping @Sendable () -> Answer) -> Answer? {
        let answer = Lock<Answer?>(nil)
        let answered = Semaphore()
        let work: @Sendable () -> Void = {
            let found = look()
            answer.withLock { $0 = found }
            answered.post()
        }
        // Without a thread nobody can be waited for who may not answer.
        guard let thread = try? WorkerThread.start("look", work) else { return nil }
        thread.detach()
        return answered.wait(until: Clock.deadline(seconds: self.look)) ? answer.withLock { $0 } : nil
    }
}
