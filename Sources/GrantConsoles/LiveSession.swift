import GrantModel
import GrantSystem
import GrantTerminal

/// The state machine of a console that shows and changes live data. It knows no screen.
public protocol LiveConsole: Sendable {
    /// The data at one moment.
    associatedtype Snapshot: Sendable
    /// An action that the person has confirmed.
    associatedtype Action: Sendable

    mutating func resize(_ size: Size)
    mutating func handle(_ answer: LiveAnswer<Snapshot>)
    mutating func handle(_ key: Key) -> [LiveEffect<Action>]
    func frame(_ size: Size) -> Frame
}

public enum LiveAnswer<Snapshot: Sendable>: Sendable {
    case seen(Snapshot)
    /// The update failed. The last data is kept.
    case failed(String)
    /// The result of an action.
    case done(String)
}

public enum LiveEffect<Action: Sendable>: Sendable {
    case act(Action)
    case quit
}

extension LiveEffect: Equatable where Action: Equatable {}

/// A console on a screen. One thread updates the data, others carry out actions, so keys are handled even if a mount or server hangs.
public final class LiveSession<Console: LiveConsole> {
    /// The functions that do the work. The session knows neither stores nor mounts.
    public struct Work: Sendable {
        public var look: @Sendable () throws(GrantError) -> Console.Snapshot
        /// Returns the result, for people.
        public var act: @Sendable (Console.Action) throws(GrantError) -> String

        public init(
            look: @escaping @Sendable () throws(GrantError) -> Console.Snapshot,
            act: @escaping @Sendable (Console.Action) throws(GrantError) -> String
        ) {
            (self.look, self.act) = (look, act)
        }
    }

    private let work: Work
    private let delay: Double
    private let inbox: Inbox<LiveAnswer<Console.Snapshot>>
    /// Posted for an update before its time.
    private let wakeUp = Semaphore()
    private var console: Console

    /// `delay`: seconds between two updates.
    public init(_ console: Console, delay: Double, work: Work) throws(GrantError) {
        (self.work, self.delay, self.console) = (work, delay, console)
        do throws(Errno) {
            inbox = try Inbox()
        } catch {
            throw GrantError(.system, "the screen cannot be shown", cause: error.description)
        }
    }

    /// Runs until the person quits.
    public func run(on screen: Screen) throws(GrantError) {
        let loop = try EventLoop(screen, inbox)
        console.resize(screen.size)
        try startLooking()
        loop.run({ handle($0) ? () : nil }, frame: { console.frame($0) })
    }

    /// Returns true at the end.
    private func handle(_ event: Event<LiveAnswer<Console.Snapshot>>) -> Bool {
        switch event {
        case .key(let key): return carryOut(console.handle(key))
        case .resized(let size): console.resize(size)
        case .message(let answer): console.handle(answer)
        }
        return false
    }

    private func startLooking() throws(GrantError) {
        let (work, inbox, wakeUp) = (work, inbox, wakeUp)
        let milliseconds = Int(delay * 1000)
        do throws(Errno) {
            try WorkerThread.start("look") {
                while true {
                    do throws(GrantError) {
                        inbox.post(.seen(try work.look()))
                    } catch {
                        inbox.post(.failed(error.description))
                    }
                    wakeUp.waitForAny(within: milliseconds)
                }
            }.detach()
        } catch {
            throw GrantError(.system, "the console cannot be shown", cause: error.description)
        }
    }

    private func carryOut(_ effects: [LiveEffect<Console.Action>]) -> Bool {
        for effect in effects {
            guard case .act(let action) = effect else { return true }
            let (work, inbox, wakeUp) = (work, inbox, wakeUp)
            let act: @Sendable () -> Void = {
                do throws(GrantError) {
                    inbox.post(.done(try work.act(action)))
                } catch {
                    inbox.post(.done(error.description))
                }
                wakeUp.post()
            }
            guard let thread = try? WorkerThread.start("act", act) else {
                console.handle(.done("it could not be done: no thread can be started"))
                continue
            }
            thread.detach()
        }
        return false
    }
}
