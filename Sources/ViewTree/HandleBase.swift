import CLinux
import LinuxFS

/// An open directory by which open_by_handle_at(2) knows a filesystem. One for all scopes on a mount, because a view may have more grants than a
/// process has descriptors to spare. Closed with the last reference.
public final class HandleBase: Sendable {
    let number: Int32

    /// `descriptor`: not O_PATH.
    public init(_ descriptor: consuming FileDescriptor) { number = descriptor.release() }

    deinit { _ = clinux_close(number) }
}

/// The handle bases in use, by the id of the mount (statx(2), STATX_MNT_ID), which is not given to another mount while a descriptor
/// is open on it.
///
/// Locking: one lock of rank 1, for whoever makes a scope.
public final class HandleBases: Sendable {
    private struct Entry {
        weak var base: HandleBase?
    }

    private let table = Lock<[UInt64: Entry]>([:])

    public init() {}

    /// The base for a mount; made by `make`, which may say nil, where there is none.
    public func base(of mount: UInt64, _ make: () -> HandleBase?) -> HandleBase? {
        table.withLock { table in
            if let base = table[mount]?.base { return base }
            table = table.filter { $0.value.base != nil }
            guard let made = make() else { return nil }
            table[mount] = Entry(base: made)
            return made
        }
    }
}
