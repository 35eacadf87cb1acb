import GrantAdministration
import GrantModel
import GrantSystem
import GrantTerminal

/// The console on a screen. A thread looks, others do what was asked for: a mount that does not answer keeps no key waiting.
public final class TopSession {
    /// How it is done; the session knows neither the store nor the mounts.
    public struct Work: Sendable {
        public var look: @Sendable () throws(GrantError) -> TopSnapshot
        /// What came of it, for people.
        public var act: @Sendable (Top.Action) throws(GrantError) -> String

        public init(
            look: @escaping @Sendable () throws(GrantError) -> TopSnapshot,
            act: @escaping @Sendable (Top.Action) throws(GrantError) -> String
        ) {
            (self.look, self.act) = (look, act)
        }
    }

    private let work: Work
    private let delay: Double
    private let inbox: Inbox<Top.Answer>
    /// Posted when there is something new to see before the time.
    private let wake = Semaphore()
    private var top: Top

    /// `delay`: seconds between two looks.
    public init(delay: Double, work: Work) throws(GrantError) {
        (self.work, self.delay, top) = (work, delay, Top(delay: delay))
        do throws(Errno) {
            inbox = try Inbox()
        } catch {
            throw GrantError(.system, "the screen cannot be shown", cause: error.description)
        }
    }

    /// Until somebody ends it.
    public func run(on screen: Screen) throws(GrantError) {
        let loop = try EventLoop(screen, inbox)
        top.resize(screen.size)
        try startLooking()
        loop.run({ handle($0) ? () : nil }, frame: { top.frame($0) })
    }

    /// True at the end.
    private func handle(_ event: Event<Top.Answer>) -> Bool {
        switch event {
        case .key(let key): return carryOut(top.handle(key))
        case .resized(let size): top.resize(size)
        case .message(let answer): top.handle(answer)
        }
        return false
    }

    private func startLooking() throws(GrantError) {
        let (work, inbox, wake) = (work, inbox, wake)
        let milliseconds = Int(delay * 1000)
        do throws(Errno) {
            try WorkerThread.start("look") {
                while true {
                    do throws(GrantError) {
                        inbox.post(.seen(try work.look()))
                    } catch {
                        inbox.post(.failed(error.description))
                    }
                    wake.waitForAny(within: milliseconds)
                }
            }.detach()
        } catch {
            throw GrantError(.system, "the mounts cannot be looked at", cause: error.description)
        }
    }

    private func carryOut(_ effects: [Top.Effect]) -> Bool {
        for effect in effects {
            guard case .act(let action) = effect else { return true }
            let (work, inbox, wake) = (work, inbox, wake)
            let act: @Sendable () -> Void = {
                do throws(GrantError) {
                    inbox.post(.done(try work.act(action)))
                } catch {
                    inbox.post(.done(error.description))
                }
                wake.post()
            }
            guard let thread = try? WorkerThread.start("act", act) else {
                top.handle(.done("it could not be done: no thread can be started"))
                continue
            }
            thread.detach()
        }
        return false
    }
}
