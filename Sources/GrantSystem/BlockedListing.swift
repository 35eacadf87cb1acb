import CGrantSystem

/// A thread in a getdents64(2) that does not return.
///
/// The kernel holds the lock of the directory while it copies entries to the thread's memory, which
/// may never arrive.
public struct BlockedListing: Hashable, Sendable {
    /// The device and the node id of the directory, and the node's generation.
    public let device: DeviceNumber
    public let node: UInt64
    public let generation: UInt32
    private let thread: Int32
    /// The text of `syscall`: number, arguments, stack and instruction pointer.
    ///
    /// It stays the same while the thread is in the call.
    private let call: [UInt8]

    /// The blocked listings of a process, on FUSE filesystems.
    ///
    /// Threads that only wait for the lock of the directory are left out. The directory is found by
    /// the thread's descriptor, and no filesystem is asked. Threads of which the kernel does not
    /// show the call are not found: that takes the right to trace them.
    public static func of(_ pid: Int32, _ onProgress: () -> Void = {}) -> [BlockedListing] {
        let tasks = "/proc/\(pid)/task"
        return ((try? DirectoryNames.of(tasks.utf8)) ?? []).compactMap { name in
            onProgress()
            guard let thread = Int32(String(decoding: name, as: UTF8.self), radix: 10) else { return nil }
            return BlockedListing(thread: thread, at: "\(tasks)/\(thread)")
        }
    }

    private init?(thread: Int32, at place: String) {
        guard let call = try? File.contents(of: "\(place)/syscall".utf8), let descriptor = Self.listed(by: call) else { return nil }
        let link = "\(place)/fd/\(descriptor)"
        guard let node = FUSEConnection.node(of: link), let mount = try? MountIdentity.withoutAsking(link), !Self.isQueued(at: place)
        else { return nil }
        (device, self.node, generation) = (mount.device, node.id, node.generation)
        (self.thread, self.call) = (thread, call)
    }

    /// The descriptor of a listing, by the text of `syscall`: the number in decimal, then the
    /// arguments in hexadecimal.
    ///
    /// A running thread has none.
    private static func listed(by call: [UInt8]) -> Int32? {
        let words = call.split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
        guard words.count > 4, let number = Int(words[0], radix: 10), let descriptor = hexadecimal(words[1]),
            let size = hexadecimal(words[3]), clinux_is_listing(number, size)
        else { return nil }
        return Int32(truncatingIfNeeded: descriptor)
    }

    private static func hexadecimal(_ word: String) -> UInt? { UInt(word.dropFirst(2), radix: 16) }

    /// Whether the thread waits for the lock of the directory, or of a page of its listing, and
    /// holds neither.
    ///
    /// Root sees the stack, in which a thread that holds them is in a page fault. Others see the
    /// function that waits (fs/readdir.c).
    private static func isQueued(at place: String) -> Bool {
        if let stack = try? File.contents(of: "\(place)/stack".utf8), !stack.isEmpty {
            return !stack.split(separator: 0x0A).contains { $0.contains(part: "page_fault".utf8) }
        }
        return (try? File.contents(of: "\(place)/wchan".utf8)).map { $0.starts(with: "iterate_dir".utf8) } ?? false
    }
}
