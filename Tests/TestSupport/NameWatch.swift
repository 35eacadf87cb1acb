import Glibc

/// The events of the names of one directory, by inotify(7).
public final class NameWatch {
    public struct Event {
        public let name: String
        /// IN_CREATE: an object was made under this name.
        public let isMade: Bool
        /// IN_MOVED_TO: a complete object got this name.
        public let isMoved: Bool
        public let isDirectory: Bool
    }

    private let descriptor: Int32

    public init(_ directory: String) throws {
        descriptor = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard inotify_add_watch(descriptor, directory, UInt32(IN_CREATE | IN_MOVED_TO)) >= 0 else {
            throw TestFailure("inotify_add_watch \(directory): \(String(cString: strerror(errno)))")
        }
    }

    deinit { close(descriptor) }

    /// All events since the last call.
    public func events() -> [Event] {
        var events: [Event] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count <= 0 { return events }
            buffer.prefix(count).withUnsafeBytes { bytes in
                var offset = 0
                while offset + 16 <= bytes.count {
                    let mask = bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
                    let length = Int(bytes.loadUnaligned(fromByteOffset: offset + 12, as: UInt32.self))
                    let name = bytes[(offset + 16)..<(offset + 16 + length)].prefix { $0 != 0 }
                    events.append(
                        Event(
                            name: String(decoding: name, as: UTF8.self), isMade: mask & UInt32(IN_CREATE) != 0,
                            isMoved: mask & UInt32(IN_MOVED_TO) != 0, isDirectory: mask & UInt32(IN_ISDIR) != 0))
                    offset += 16 + length
                }
            }
        }
    }
}
