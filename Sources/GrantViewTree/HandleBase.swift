import CGrantSystem
import GrantSystem

/// An open directory by which open_by_handle_at(2) identifies a filesystem.
///
/// All scopes on a mount share it, because a view may have more grants than a process can have
/// descriptors. Closed with the last reference.
public final class HandleBase: Sendable {
    let number: Int32

    /// `descriptor`: not O_PATH.
    public init(_ descriptor: consuming FileDescriptor) { number = descriptor.release() }

    deinit { _ = clinux_close(number) }
}

/// The handle bases in use, by mount ID (statx(2), STATX_MNT_ID).
///
/// A mount ID is not reused while a descriptor on the mount is open.
///
/// Locking: one lock of rank 2. A base is made outside of it, because the filesystem may hang and
/// other grants must not wait.
public final class HandleBases: Sendable {
    private struct Entry {
        weak var base: HandleBase?
    }

    private let table = Lock<[UInt64: Entry]>([:])

    public init() {}

    /// The base for a mount. `make` makes it, or returns nil if there is none.
    ///
    /// Concurrent callers share the first one.
    public func base(of mount: UInt64, _ make: () -> HandleBase?) -> HandleBase? {
        if let known = table.withLock({ $0[mount]?.base }) { return known }
        guard let made = make() else { return nil }
        return table.withLock { table in
            if let known = table[mount]?.base { return known }
            table = table.filter { $0.value.base != nil }
            table[mount] = Entry(base: made)
            return made
        }
    }
}
