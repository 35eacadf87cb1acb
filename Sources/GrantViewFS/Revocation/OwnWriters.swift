import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Synchronization

/// Opens files of this daemon's own mount for writing, so that an invalidation drops their dirty pages as well.
///
/// The kernel writes a dirty page back and drops it while it has the page locked, but only through a file that is open for writing.
/// Where there is none it keeps the page, and tells nobody (fs/fuse/file.c, fuse_launder_folio; mm/truncate.c,
/// invalidate_inode_pages2_range). Pages get dirty without such a file when they were pinned through a mapping that is gone since
/// (pin_user_pages(9)): by a read past the cache from another filesystem, such as a FUSE of the holder's own, which ends when that
/// likes. Whoever still has the file open for reading could map these pages after the withdrawal.
///
/// Needs CAP_DAC_READ_SEARCH for open_by_handle_at(2), so a user's daemon has none: there, files are invalidated several times.
///
/// Locking: its own, for a moment; never during a call that waits.
final class OwnWriters: Sendable {
    /// The threads whose requests about a withdrawn file are answered, and the attributes of that file.
    private let threads = Lock<[pid_t: stat]>([:])
    private let count = Atomic<Int>(0)
    private let root = Lock<(@Sendable () throws(Errno) -> FileDescriptor)?>(nil)
    /// Files that could not be closed yet: with write-back the kernel takes the inode's lock for that, which a program can hold.
    private static let closing = AbandonLimit(limit: 64)

    /// The type of a handle that FUSE makes without the parent: node id and generation (fs/fuse/inode.c, fuse_fh_to_dentry).
    private static let handleType: Int32 = 0x81

    /// `open`: opens the root of this daemon's mount, and no other file, as O_PATH.
    func set(root open: @escaping @Sendable () throws(Errno) -> FileDescriptor) { root.withLock { $0 = open } }

    /// Whether a request comes from a thread that is opening such a file. `thread`: the kernel's word (fs/fuse/dev.c).
    @inline(__always)
    func isOwn(_ thread: pid_t) -> Bool { count.load(ordering: .relaxed) > 0 && has(thread) }

    @inline(never)
    private func has(_ thread: pid_t) -> Bool { threads.withLock { $0[thread] != nil } }

    func attributes(for thread: pid_t) -> stat? { threads.withLock { $0[thread] } }

    /// Runs a body whose requests to this daemon's own mount are answered, those for attributes with these.
    private func asOwn<Result>(_ attributes: stat, _ body: () -> Result) -> Result {
        let thread = clinux_gettid()
        threads.withLock { $0[thread] = attributes }
        count.wrappingAdd(1, ordering: .sequentiallyConsistent)
        defer {
            count.wrappingSubtract(1, ordering: .sequentiallyConsistent)
            threads.withLock { $0[thread] = nil }
        }
        return body()
    }

    /// Opens the root for `invalidate`; nil where files cannot be opened by their handles.
    func openRoot() -> OwnRoot? {
        guard let open = root.withLock({ $0 }) else { return nil }
        // The root is asked like anybody's.
        guard let place = try? open(), let directory = try? place.reopened(O_RDONLY | O_DIRECTORY) else { return nil }
        return OwnRoot(directory)
    }

    /// Invalidates a withdrawn file's data by a writer. `writesBack`: whether the mount has a write-back cache. Blocks while the daemon's
    /// workers are busy, and where more files than `closing` cannot be closed.
    ///
    /// False where there can be no writer: a program runs from the file or has a lease of it, the mount is read-only, a program that may
    /// refuse openings (fanotify(7)) cannot open it either, there are no descriptors or no memory.
    func invalidate(_ node: UInt64, generation: UInt32, _ root: OwnRoot, _ notifier: Notifier, writesBack: Bool) -> Bool {
        var handle = clinux_handle()
        handle.type = Self.handleType
        handle.length = 12
        withUnsafeMutableBytes(of: &handle.bytes) { bytes in
            bytes.storeBytes(of: UInt32(truncatingIfNeeded: node >> 32), as: UInt32.self)
            bytes.storeBytes(of: UInt32(truncatingIfNeeded: node), toByteOffset: 4, as: UInt32.self)
            bytes.storeBytes(of: generation, toByteOffset: 8, as: UInt32.self)
        }
        // What the kernel knows of the file, without asking. It stays so: the answer to its question is the same.
        let place = clinux_open_by_handle(root.descriptor.number, &handle, clinux_O_PATH)
        // Otherwise the kernel has forgotten it meanwhile.
        if place < 0 { return place == -ESTALE }
        defer { _ = clinux_close(place) }
        var known = FileStatus()
        guard clinux_statx_known(place, &known) == 0 else { return false }
        return asOwn(known.st) {
            let file = clinux_open_by_handle(root.descriptor.number, &handle, O_RDWR | O_NONBLOCK | O_NOCTTY)
            if file < 0 { return file == -ESTALE }
            // Without write-back the kernel knows as writers only those who have a shared mapping (fs/fuse/file.c, fuse_file_mmap).
            let page = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
            let isMapped = page != MAP_FAILED
            if isMapped { _ = notifier.invalidateData(NodeID(node)) }
            if let page, isMapped { munmap(page, 4096) }
            if writesBack { Self.closeAside(file) } else { _ = clinux_close(file) }
            return isMapped
        }
    }

    private static func closeAside(_ file: Int32) {
        guard closing.take() else {
            _ = clinux_close(file)
            return
        }
        _ = BackgroundTask(mayHang: true) {
            _ = clinux_close(file)
            closing.release(1)
        }
    }
}

/// The root directory of this daemon's own mount.
final class OwnRoot: Sendable {
    let descriptor: FileDescriptor

    init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
}

extension ViewFS {
    /// Whether the mount has a write-back cache.
    public var writesBack: Bool { policy.writeBack }

    /// Has `open` open the root of this daemon's mount, and no other file, as O_PATH, when a withdrawal needs it.
    public func setOwnRoot(_ open: @escaping @Sendable () throws(Errno) -> FileDescriptor) { ownWriters.set(root: open) }

    /// Replies to a request of `OwnWriters` for attributes: those that the kernel has had.
    @inline(never)
    func replyOwnAttributes(_ request: consuming Request) {
        if var attributes = ownWriters.attributes(for: request.caller.pid) {
            request.reply(attributes: &attributes, timeout: 0)
        } else {
            request.reply(error: EACCES)
        }
    }

    /// Replies to an OPEN of `OwnWriters`: no file of the host is opened.
    @inline(never)
    func replyOwnOpen(_ request: consuming Request, _ info: UnsafeMutablePointer<OpenFileInfo>) {
        info.pointee.fh = 0
        info.pointee.keep_cache = 1
        // Its FLUSH would wait for the inode's lock.
        info.pointee.noflush = 1
        _ = request.reply(file: info)
    }

    /// The files that somebody may have open, and of which the kernel may have pages that nobody can write back.
    func mayKeepPages(_ ids: [UInt64]) -> [UInt64] {
        ids.filter { id in
            guard let node = tree.nodes.find(id), node.pointee.type == S_IFREG else { return false }
            if kernelOpens { return node.pointee.mayHavePages.load(ordering: .relaxed) }
            // Only who maps a file for writing can have its pages pinned so that they get dirty.
            return node.pointee.openers.load(ordering: .acquiring) > 0 && node.pointee.wasWritable.load(ordering: .acquiring)
        }
    }
}
