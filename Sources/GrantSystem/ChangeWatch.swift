import CGrantSystem
import Glibc

/// Reports changes by any process on watched filesystems or in watched directories.
///
/// It uses fanotify(7) for filesystems and inotify(7) for directories. A change names its directory
/// by a key, which `add` returns. For inotify the key comes from the kernel, for fanotify from the
/// directory's handle.
public final class ChangeWatch: Sendable {
    public enum Means: UInt8, Sendable {
        /// Changes of names and attributes on whole filesystems, one mark each.
        ///
        /// Contents are reported when a writer closes the file. Needs CAP_SYS_ADMIN, and
        /// filesystems with an identity and handles.
        case names = 1
        /// Every write to files in watched directories.
        ///
        /// A mark on the whole filesystem would slow every write on it.
        case data = 2
        /// Both, by one watch per directory.
        ///
        /// A user has a limited number of watches. The process that made a change is not reported.
        case directories = 3
    }

    public let means: Means
    private let group: FileDescriptor
    /// How many watches may be added, for `directories` only.
    private let budget: Int
    /// The keys of watched directories, for `directories` only. The kernel gives the key of an earlier watch again.
    private let used = Lock<Set<Int32>>([])

    /// Makes a watch without directories. `budget`: how many it may watch, for `directories` only. Default: half of what its user may.
    ///
    /// - Throws: EPERM or EINVAL if the kernel does not let this process watch by these means,
    ///   EMFILE if its user has too many watches.
    public init(_ means: Means, budget: Int? = nil) throws(Errno) {
        self.means = means
        switch means {
        case .names, .data:
            group = FileDescriptor(owning: try Errno.check(clinux_fanotify_open(means == .data)))
            self.budget = 0
        case .directories:
            group = FileDescriptor(owning: try Errno.check(clinux_inotify_open()))
            // The user's other programs watch, too.
            self.budget = budget ?? (File.line(of: "/proc/sys/fs/inotify/max_user_watches").flatMap { Int($0, radix: 10) } ?? 8192) / 2
        }
    }

    /// Watches the filesystem of a descriptor, which may be O_PATH. For `names`.
    ///
    /// Adding it twice is harmless.
    ///
    /// - Throws: ENODEV, EXDEV or EOPNOTSUPP if the kernel cannot report changes on that filesystem
    ///   by handle.
    public func addFilesystem(of descriptor: Int32) throws(Errno) {
        _ = try Errno.check(clinux_fanotify_watch(group.number, descriptor))
        var key: UInt64 = 0
        _ = try Errno.check(clinux_directory_key(descriptor, &key))
    }

    /// Stops reporting writes in a directory (O_PATH) for a while. For `data`.
    ///
    /// They then cost the writers nothing.
    public func pause(directory descriptor: Int32) { _ = clinux_fanotify_watch_data(group.number, descriptor, false) }

    /// Returns the key under which changes in a directory (O_PATH) are reported.
    ///
    /// For `data` and `directories`, also starts watching it. Returns nil if it cannot be watched.
    /// Changes of `data` name no directory.
    public func add(directory descriptor: Int32) -> UInt64? {
        switch means {
        case .names:
            var key: UInt64 = 0
            return clinux_directory_key(descriptor, &key) == 0 ? key : nil
        case .data:
            return clinux_fanotify_watch_data(group.number, descriptor, true) == 0 ? 0 : nil
        case .directories:
            return used.withLock { used in
                guard used.count < budget else { return nil }
                let key = clinux_inotify_watch(group.number, descriptor)
                guard key >= 0 else { return nil }
                used.insert(key)
                return UInt64(truncatingIfNeeded: UInt32(bitPattern: key))
            }
        }
    }

    /// Ends the watch of a directory. `isGone`: the kernel has ended it already.
    public func remove(directory key: UInt64, isGone: Bool) {
        guard means == .directories else { return }
        let key = Int32(truncatingIfNeeded: key)
        used.withLock { used in
            if !isGone { _ = clinux_inotify_unwatch(group.number, key) }
            used.remove(key)
        }
    }

    /// Waits until something has changed, or for `milliseconds`.
    public func wait(milliseconds: Int32) {
        var request = pollfd(fd: group.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        _ = poll(&request, 1, milliseconds)
    }

    /// Whether unread changes are queued.
    public var hasPending: Bool {
        var request = pollfd(fd: group.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        return poll(&request, 1, 0) != 0
    }

    /// Calls `body` with every queued change until there is none.
    ///
    /// - Parameter buffer: 4 KiB or more. The data of a change lies in it and is valid during the
    ///   call.
    public func drain(into buffer: UnsafeMutableRawBufferPointer, _ body: (Change) -> Void) {
        var change = Change()
        while true {
            let count = clinux_read(group.number, buffer.baseAddress!, buffer.count)
            if count <= 0 { return }
            var offset = 0
            while offset < count {
                let (rest, left) = (buffer.baseAddress! + offset, count - offset)
                let length =
                    means == .directories ? clinux_inotify_next(rest, left, &change) : clinux_fanotify_next(rest, left, &change)
                if length == 0 { break }
                offset += length
                body(change)
            }
        }
    }
}

/// One change: see `clinux_change`.
public typealias Change = clinux_change
/// A file's handle, see name_to_handle_at(2).
public typealias RawHandle = clinux_handle

/// Kinds of changes.
public struct ChangeKinds: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// An entry was added, removed or renamed.
    public static let names = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_names))
    public static let data = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_data))
    public static let attributes = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_attributes))
    /// The kernel dropped changes: anything may have changed.
    public static let overflow = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_overflow))
    /// The directory is gone, and its watch with it.
    public static let ended = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_ended))
    /// With `names`, on watched filesystems: a directory was removed or renamed.
    public static let directory = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_directory))
    /// With `names`: an entry of this directory was renamed.
    ///
    /// Without a name: the directory itself was renamed.
    public static let moved = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_moved))
}
