import CGrantNcurses
import Glibc
import GrantModel
import GrantSystem

/// What happens to a program on a screen.
public enum Event<Message: Sendable>: Sendable {
    case key(Key)
    case resized(Size)
    /// A message from another thread.
    case message(Message)
}

/// Waits for keys, messages of other threads and signals, and redraws after each.
public final class EventLoop<Message: Sendable> {
    private let screen: Screen
    private let inbox: Inbox<Message>
    private let signals: Inbox<Int32>

    /// From here on, this thread blocks the signals that end a program. The loop handles them
    /// between two keys.
    public init(_ screen: Screen, _ inbox: Inbox<Message>) throws(GrantError) {
        (self.screen, self.inbox) = (screen, inbox)
        do throws(Errno) {
            signals = try Inbox()
            try EventLoop.watch(signals)
        } catch {
            throw GrantError(.system, "the screen cannot be shown", cause: error.description)
        }
    }

    /// Runs until `handle` returns a result. A signal that ends programs ends this one, after the terminal was restored.
    ///
    /// - Parameters:
    ///   - handle: Handles an event. A result that is not nil ends the loop.
    ///   - frame: Draws the screen.
    public func run<Result>(_ handle: (Event<Message>) -> Result?, frame: (Size) -> Frame) -> Result {
        screen.show(frame(screen.size))
        while true {
            if wait(for: [screen.input, inbox.number, signals.number]) { end(by: SIGHUP) }
            var events: [Event<Message>] = []
            for signal in signals.take() {
                guard signal == SIGWINCH else { end(by: signal) }
                screen.updateSize()
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

    /// Returns true when the terminal has gone.
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
        // Sent to this thread: the signal thread would take it if it were sent to the process.
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
