import GrantModel
import LinuxFS

/// Looks at what may belong to anybody, and may never answer: a system call that waits for a filesystem cannot be given up.
enum Patience {
    /// In seconds.
    static let limit = 1.0

    /// Runs `look` on a thread of its own; nil when it has not come back in time. The thread is then left to itself.
    static func ask<Answer: Sendable>(_ look: @escaping @Sendable () -> Answer) -> Answer? {
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
        return answered.wait(until: Clock.deadline(seconds: limit)) ? answer.withLock { $0 } : nil
    }
}
