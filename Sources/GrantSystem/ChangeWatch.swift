import CGrantSystem
import Glibc
import Synchronization

/// Tells of changes that anybody makes on watched filesystems (fanotify(7)) or in watched directories (inotify(7)).
///
/// A change names the directory it happened in by a key, which is made when the directory is added: by the kernel for inotify, from the
/// directory's handle for fanotify.
public final class ChangeWatch: Sendable {
    public enum Means: UInt8, Sendable {
        /// Names and attributes on whole filesystems, one mark each, and contents when a writer has closed the file. Needs CAP_SYS_ADMIN, and filesystems with an identity and handles.
        case names = 1
        /// Each write to the files in watched directories. A mark for the filesystem would make every write on it dearer.
        case data = 2
        /// Both, with one watch for each directory, of which a user has a limited number. Does not say who made a change.
        case directories = 3
    }

    public let means: Means
    private let group: FileDescriptor
    /// Watches that may be added: `directories` only.
    private let budget: Int
    private let used = Atomic<Int>(0)

    /// EPERM or EINVAL where the kernel does not let this process watch by these means; EMFILE where its user has too many watches already.
    public init(_ means: Means) throws(Errno) {
        self.means = means
        switch means {
        case .names, .data:
            group = FileDescriptor(owning: try Errno.check(clinux_fanotify_open(means == .data)))
            budget = 0
        case .directories:
            group = FileDescriptor(owning: try Errno.check(clinux_inotify_open()))
            // The user's other programs watch, too.
            budget = (File.line(of: "/proc/sys/fs/inotify/max_user_watches").flatMap { Int($0, radix: 10) } ?? 8192) / 2
        }
    }

    /// `names`: watches the filesystem that a descriptor (O_PATH will do) is on. Adding it twice is harmless. ENODEV, EXDEV or EOPNOTSUPP where
    /// changes on that filesystem cannot be told apart by handles.
    public func addFilesystem(of descriptor: Int32) throws(Errno) {
        _ = try Errno.check(clinux_fanotify_watch(group.number, descriptor))
        var key: UInt64 = 0
        _ = try Errno.check(clinux_directory_key(descriptor, &key))
    }

    /// `data`: has writes in a directory (O_PATH) not told for a while, so that they cost the writers nothing.
    public func pause(directory descriptor: Int32) { _ = clinux_fanotify_watch_data(group.number, descriptor, false) }

    /// The key under which changes in the directory behind an O_PATH descriptor will be told; from now on, where each directory has to be
    /// watched. nil where it cannot be. Changes of `data` name no directory.
    public func add(directory descriptor: Int32) -> UInt64? {
        switch means {
        case .names:
            var key: UInt64 = 0
            return clinux_directory_key(descriptor, &key) == 0 ? key : nil
        case .data:
            return clinux_fanotify_watch_data(group.number, descriptor, true) == 0 ? 0 : nil
        case .directories:
            guard used.load(ordering: .relaxed) < budget else { return nil }
            let key = clinux_inotify_watch(group.number, descriptor)
            guard key >= 0 else { return nil }
            used.wrappingAdd(1, ordering: .relaxed)
            return UInt64(truncatingIfNeeded: UInt32(bitPattern: key))
        }
    }

    /// Ends the watch of a directory. `isGone`: the kernel has ended it already.
    public func remove(directory key: UInt64, isGone: Bool) {
        guard means == .directories else { return }
        if !isGone { _ = clinux_inotify_unwatch(group.number, Int32(truncatingIfNeeded: key)) }
        used.wrappingSubtract(1, ordering: .relaxed)
    }

    /// Waits until something has changed, or for `milliseconds`.
    public func wait(milliseconds: Int32) {
        var request = pollfd(fd: group.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        _ = poll(&request, 1, milliseconds)
    }

    /// Whether changes are waiting to be taken.
    public var hasWaiting: Bool {
        var request = pollfd(fd: group.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        return poll(&request, 1, 0) != 0
    }

    /// Calls `body` with every change that is waiting, until there is none. `buffer`: 4 KiB or more; what a change points to is in it, valid
    /// during the call.
    public func takeAll(into buffer: UnsafeMutableRawBufferPointer, _ body: (Change) -> Void) {
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

/// What changed.
public struct ChangeKinds: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// An entry came, went or was renamed.
    public static let names = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_names))
    public static let data = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_data))
    public static let attributes = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_attributes))
    /// The kernel dropped changes: anything may have changed.
    public static let overflow = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_overflow))
    /// The directory is gone, and its watch with it.
    public static let ended = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_ended))
    /// With `names`, where filesystems are watched: the entry was a directory, and went or was renamed.
    public static let directory = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_directory))
    /// With `names`: the entry was renamed, and was in this directory before. Without a name: the directory itself was renamed.
    public static let moved = ChangeKinds(rawValue: UInt32(truncatingIfNeeded: clinux_change_moved))
}
