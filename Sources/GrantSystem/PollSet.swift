import Glibc

/// poll(2) of many descriptors at once.
public struct PollSet {
    private var entries: [pollfd] = []

    public init() {}

    public mutating func removeAll() { entries.removeAll(keepingCapacity: true) }

    /// Adds a descriptor. `isReadable` and `isWritable` take its index.
    public mutating func add(_ descriptor: Int32, writing: Bool = false) {
        entries.append(pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: writing ? POLLIN | POLLOUT : POLLIN), revents: 0))
    }

    /// Waits until a descriptor is ready or `deadline` passes. False after the deadline.
    ///
    /// - Parameter deadline: A time of `Clock.monotonic`. nil means forever.
    public mutating func wait(until deadline: Int64?) throws(Errno) -> Bool {
        while true {
            let left = deadline.map { Int32(clamping: max(0, ($0 &- Clock.monotonic &+ 999_999) / 1_000_000)) } ?? -1
            let result = poll(&entries, nfds_t(truncatingIfNeeded: entries.count), left)
            if result > 0 { return true }
            if result == 0, let deadline, Clock.monotonic >= deadline { return false }
            if result < 0, errno != EINTR { throw Errno(errno) }
        }
    }

    /// Whether there is data, an end of file or an error.
    public func isReadable(_ place: Int) -> Bool { entries[place].revents & ~Int16(truncatingIfNeeded: POLLOUT) != 0 }

    public func isWritable(_ place: Int) -> Bool { entries[place].revents & Int16(truncatingIfNeeded: POLLOUT) != 0 }
}
