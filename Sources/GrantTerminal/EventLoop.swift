import CGrantNcurses
import Glibc
import GrantModel
import GrantSystem

/// What a program on a screen is told.
public enum Event<Message: Sendable>: Sendable {
    case key(Key)
    case resized(Size)
    /// What another thread had to say.
    case message(Message)
}

/// Waits for keys, for other threads and for signals, and shows what the program looks like after each.
public final class EventLoop<Message: Sendable> {
    private let screen: Screen
    private let inbox: Inbox<Message>
    private let signals: Inbox<Int32>

    /// Signals that end the program are blocked from here on in this thread, and dealt with between two keys.
    public init(_ screen: Screen, _ inbox: Inbox<Message>) throws(GrantError) {
        (self.screen, self.inbox) = (screen, inbox)
        do throws(Errno) {
            signals = try Inbox()
            try EventLoop.watch(signals)
        } catch {
            throw GrantError(.system, "the screen cannot be shown", cause: error.description)
        }
    }

    /// Until `handle` gives a result. A signal that ends programs ends this one, with the terminal as it was before.
    ///
    /// - Parameters:
    ///   - handle: takes an event; what is not nil ends the loop.
    ///   - frame: what is to be seen then.
    public func run<Result>(_ handle: (Event<Message>) -> Result?, frame: (Size) -> Frame) -> Result {
        screen.show(frame(screen.size))
        while true {
            if wait(for: [screen.input, inbox.number, signals.number]) { end(by: SIGHUP) }
            var events: [Event<Message>] = []
            for signal in signals.take() {
                guard signal == SIGWINCH else { end(by: signal) }
                screen.measure()
                events.append(.resized(screen.size))
            }
            for key in screen.keys() {
                if key == .control("z") { screen.suspend() } else { events.append(.key(key)) }
            }
            events += inbox.take().map { .message($0) }
            for event in events {
                if let result = handle(event) { return result }
            }
            screen.show(frame(screen.size))
        }
    }

    /// True when the terminal has gone.
    private func wait(for numbers: [Int32]) -> Bool {
        var items = numbers.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        while poll(&items, nfds_t(items.count), -1) < 0, errno == EINTR {}
        return Int32(items[0].revents) & (POLLHUP | POLLERR | POLLNVAL) != 0
    }

    private func end(by signal: Int32) -> Never {
        screen.close()
        Glibc.signal(signal, SIG_DFL)
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, signal)
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        // To this thread: the one that waits for signals would take it from the process.
        raise(signal)
        exit(128 + signal)
    }

    private static func watch(_ signals: Inbox<Int32>) throws(Errno) {
        var blocked = sigset_t()
        sigemptyset(&blocked)
        for signal in [SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGQUIT] { sigaddset(&blocked, signal) }
        pthread_sigmask(SIG_BLOCK, &blocked, nil)
        let watched = blocked
        try WorkerThread.start("signals") {
            var set = watched
            while true {
                var signal: Int32 = 0
                if sigwait(&set, &signal) == 0 { signals.post(signal) }
            }
        }.detach()
    }
}
