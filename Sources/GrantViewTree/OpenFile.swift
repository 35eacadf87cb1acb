import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// A file opened through the mount.
///
/// Its descriptor is closed when the kernel has released the file and no operation uses it.
public struct OpenFile: ~Copyable {
    public let descriptor: Int32
    public let node: UInt64
    public let scope: UInt32
    /// The opener. The kernel's write-back acts as that user.
    public let (uid, gid, pid): (uid_t, gid_t, pid_t)
    /// The caller's open(2) flags.
    public let flags: Int32
    /// Whether the descriptor can only append.
    ///
    /// The file then allows nothing else (FS_APPEND_FL).
    public let appendsOnly: Bool
    /// Refusing bits of `Containment`, copied from the node.
    public let containment = Atomic<UInt8>(0)
    /// How many lost writes of the file were reported to its user.
    public let reportedLosses = Atomic<UInt32>(0)
    /// The kernel's reference, and one for each running operation.
    let refcount = Atomic<UInt32>(1)
    /// Whether the kernel has released it, or is about to get the reply to RELEASE.
    ///
    /// The next daemon must not get it, nor its locks.
    public let isReleased = Atomic<Bool>(false)

    public init(
        descriptor: consuming FileDescriptor, node: UInt64, scope: UInt32, opener: (uid: uid_t, gid: gid_t, pid: pid_t), flags: Int32,
        appendsOnly: Bool
    ) {
        self.descriptor = descriptor.release()
        self.node = node
        self.scope = scope
        (uid, gid, pid) = opener
        self.flags = flags
        self.appendsOnly = appendsOnly
    }

    deinit { _ = clinux_close(descriptor) }

    public var canWrite: Bool { flags & O_ACCMODE != O_RDONLY }
    public var canRead: Bool { flags & O_ACCMODE != O_WRONLY }
}

/// A directory opened through the mount.
public struct OpenDirectory: ~Copyable {
    public let descriptor: Int32
    public let node: UInt64
    public let scope: UInt32
    /// The opener.
    public let user: UInt32
    /// Refusing bits of `Containment`, copied from the node.
    public let containment = Atomic<UInt8>(0)
    let refcount = Atomic<UInt32>(1)
    /// See `OpenFile.isReleased`.
    public let isReleased = Atomic<Bool>(false)
    /// Entries read and not yet returned.
    public let stream: Lock<DirectoryStream>

    public init(descriptor: consuming FileDescriptor, node: UInt64, scope: UInt32, user: UInt32) {
        self.descriptor = descriptor.release()
        self.node = node
        self.scope = scope
        self.user = user
        stream = Lock(DirectoryStream())
    }

    deinit { _ = clinux_close(descriptor) }
}

/// The open files of a mount, by their file handle number (`fi->fh`).
public final class OpenFiles: @unchecked Sendable {
    // Sendable: the table is, and an element lives as long as its count.
    let table: SlotTable<OpenFile>
    let shares: FairQuota
    static let lists = 8
    /// The published table for the next daemon.
    public let shared: SharedChunks?
    /// Each file added here holds a reservation of `shares`, released with it.
    public init(_ shares: FairQuota, shared: SharedChunks? = nil) {
        self.shares = shares
        self.shared = shared
        table = SlotTable(lists: Self.lists, shared: shared)
    }

    public var count: Int { table.count }
    /// Does the same as `NodeTree.trim`.
    public func trim() -> Int { table.trim() }
    /// Adds a file. `worker`: the caller's slot. Returns nil if there is no room.
    public func add(_ file: consuming OpenFile, by worker: Int) -> UInt64? {
        let (scope, user) = (file.scope, file.uid)
        let id = table.insert(file, by: worker)
        if id == nil { shares.release(scope: scope, user: user) }
        return id
    }

    /// Acquires a reference to the file until `drop`.
    @inline(__always)
    public func acquire(_ id: UInt64) -> UnsafeMutablePointer<OpenFile>? {
        guard let file = table.find(id) else { return nil }
        file.pointee.refcount.wrappingAdd(1, ordering: .relaxed)
        return file
    }

    /// A file that the caller keeps open by other means.
    @inline(__always)
    public func find(_ id: UInt64) -> UnsafeMutablePointer<OpenFile>? { table.find(id) }

    @inline(__always)
    public func drop(_ id: UInt64) {
        guard let file = table.find(id) else { return }
        let (scope, user) = (file.pointee.scope, file.pointee.uid)
        guard file.pointee.refcount.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return }
        table.remove(id)
        shares.release(scope: scope, user: user)
    }

    /// Releases the backing files of a shut scope that no operation is inside.
    ///
    /// Their descriptor numbers become copies of `nothing` (`clinux_open_nothing`) until the kernel
    /// releases the files. So a late user gets an error and never another file. May block on the
    /// filesystem.
    public func release(_ scope: UInt32, to nothing: Int32) {
        for index in 0..<table.indexLimit {
            var found: (id: UInt64, descriptor: Int32)?
            table.visit(index) { id, file in
                if file.pointee.scope == scope, incrementUnlessZero(file.pointee.refcount) { found = (id, file.pointee.descriptor) }
            }
            guard let found else { continue }
            _ = clinux_replace(found.descriptor, nothing)
            drop(found.id)
        }
    }
}

/// The open directories of a mount.
public final class OpenDirectories: @unchecked Sendable {
    // Sendable: as OpenFiles.
    let table: SlotTable<OpenDirectory>
    let shares: FairQuota
    public let shared: SharedChunks?
    /// See `OpenFiles`.
    public init(_ shares: FairQuota, shared: SharedChunks? = nil) {
        self.shares = shares
        self.shared = shared
        table = SlotTable(shared: shared)
    }

    public var count: Int { table.count }
    /// Does the same as `NodeTree.trim`.
    public func trim() -> Int { table.trim() }
    public func add(_ directory: consuming OpenDirectory) -> UInt64? {
        let (scope, user) = (directory.scope, directory.user)
        let id = table.insert(directory)
        if id == nil { shares.release(scope: scope, user: user) }
        return id
    }

    /// Marks a directory as released by the kernel, before the reply to RELEASEDIR.
    public func markReleased(_ id: UInt64) { table.find(id)?.pointee.isReleased.store(true, ordering: .releasing) }

    public func acquire(_ id: UInt64) -> UnsafeMutablePointer<OpenDirectory>? {
        guard let directory = table.find(id) else { return nil }
        directory.pointee.refcount.wrappingAdd(1, ordering: .relaxed)
        return directory
    }

    /// A directory that the caller keeps open by other means.
    public func find(_ id: UInt64) -> UnsafeMutablePointer<OpenDirectory>? { table.find(id) }

    public func drop(_ id: UInt64) {
        guard let directory = table.find(id) else { return }
        let (scope, user) = (directory.pointee.scope, directory.pointee.user)
        guard directory.pointee.refcount.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return }
        table.remove(id)
        shares.release(scope: scope, user: user)
    }

    /// Does the same as `OpenFiles.release`.
    public func release(_ scope: UInt32, to nothing: Int32) {
        for index in 0..<table.indexLimit {
            var found: (id: UInt64, descriptor: Int32)?
            table.visit(index) { id, directory in
                if directory.pointee.scope == scope, incrementUnlessZero(directory.pointee.refcount) {
                    found = (id, directory.pointee.descriptor)
                }
            }
            guard let found else { continue }
            _ = clinux_replace(found.descriptor, nothing)
            drop(found.id)
        }
    }
}

/// Increments a reference count unless it is 0: then the object is ending.
func incrementUnlessZero(_ refcount: borrowing Atomic<UInt32>) -> Bool {
    var old = refcount.load(ordering: .relaxed)
    while old != 0 {
        let (done, seen) = refcount.compareExchange(expected: old, desired: old + 1, ordering: .acquiringAndReleasing)
        if done { return true }
        old = seen
    }
    return false
}
