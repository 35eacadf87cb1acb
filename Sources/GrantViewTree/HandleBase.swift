import CGrantSystem
import GrantSystem

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
/// Locking: one lock of rank 2. A base is made without it, because the filesystem may hang then, and other grants must not wait.
public final class HandleBases: Sendable {
    private struct Entry {
        weak var base: HandleBase?
    }

    private let table = Lock<[UInt64: Entry]>([:])

    public init() {}

    /// The base for a mount; made by `make`, which says nil where there is none. Whoever makes one at the same time shares the first.
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
