import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

// Serves directories that exist only in the mount (`VirtualDirectories`): the root, and those that
// lead from it to the grants of several views.
extension ViewFS {
    /// Seconds for which the kernel may cache the root's attributes.
    private static let rootTimeout = 0.1
    /// Seconds for which the kernel may use a cached name at the root.
    ///
    /// Each use after that costs two requests. A command that changes a name waits for that time.
    private static let nameTimeout = 0.04

    func lookupVirtual(_ request: consuming Request, _ directory: NodeID, _ text: UnsafePointer<CChar>) {
        let bytes = Array(UnsafeRawBufferPointer(start: text, count: strlen(text)))
        guard let name = try? GrantName(entry: bytes) else {
            request.reply(error: ENOENT)
            return
        }
        switch names.lookup(name, in: directory.rawValue) {
        case .nothing: request.reply(error: ENOENT)
        case .refused: request.reply(error: EACCES)
        case .directory(let id): replyDirectory(NodeID(id), request)
        case .place(.refused(let grant)):
            names.countRefusal(of: grant, uid: request.caller.uid, thread: request.caller.pid)
            request.reply(error: EACCES)
        case .place(.open(let scope)):
            if scope.dropsOnNextLookup.load(ordering: .acquiring), scope.dropsOnNextLookup.exchange(false, ordering: .acquiringAndReleasing)
            {
                request.reply(error: ESTALE)
            } else {
                replyRoot(of: scope, request)
            }
        }
    }

    /// Replies with a directory between the root and grants.
    ///
    /// The kernel has looked it up again.
    private func replyDirectory(_ id: NodeID, _ request: consuming Request) {
        guard let attributes = virtualAttributes(of: id) else {
            names.forget(id.rawValue, 1)
            request.reply(error: ENOENT)
            return
        }
        var parameters = EntryParameters()
        parameters.ino = id.rawValue
        parameters.generation = UInt64(truncatingIfNeeded: generation)
        parameters.attr = attributes
        parameters.attr_timeout = min(policy.timeout, Self.rootTimeout)
        parameters.entry_timeout = min(policy.timeout, Self.nameTimeout)
        if !request.reply(entry: &parameters) { names.forget(id.rawValue, 1) }
    }

    /// Replies with the granted directory's node and counts the lookup.
    ///
    /// Only the gate decides. For a grant of a file, the file's filesystem is asked whether another
    /// file has its name by now.
    private func replyRoot(of scope: Scope, _ request: consuming Request) {
        let slot = request.worker.pointee.slot
        var verdict = coordinator.enter(scope.id, for: .closing, slot: slot)
        // The name of an offered directory is visible.
        if verdict == .revoked, coordinator.isOffered(scope.id) {
            _ = coordinator.forceEnter(scope.id, slot: slot)
            verdict = .enter
        }
        guard verdict.isInside else { return refuse(request, verdict, scope: scope.id.rawValue) }
        if scope.isFile {
            if verdict == .congested, workerQuota.exceedsQuota(request, in: scope.id.rawValue) {
                return parkForQuota(request, .closing, scope: scope.id.rawValue)
            }
            let error = followReplacement(in: scope.nodes)
            if error < 0 {
                request.reply(failure: error)
                coordinator.leave(slot: slot)
                return
            }
        }
        let file = scope.isFile ? tree.countDocument(of: scope.nodes) : nil
        if let root = scope.isFile ? file?.id : tree.countRoot(of: scope.nodes) {
            var parameters = EntryParameters()
            parameters.ino = root
            parameters.generation = UInt64(truncatingIfNeeded: generation)
            parameters.attr =
                file.map(currentAttributes) ?? attributes(scope.nodes.rootStatus.withLock { $0 } ?? scope.rootStatus)
            // A file that is saved on the host is another one: each use of its name sends a
            // request.
            if !scope.isFile, scope.nodes.cacheBypass.load(ordering: .relaxed) == 0 {
                parameters.entry_timeout = min(policy.timeout, Self.nameTimeout)
            }
            if !request.reply(entry: &parameters) { tree.forget(root, 1) }
        } else {
            request.reply(error: ENOENT)
        }
        coordinator.leave(slot: slot)
    }

    private func virtualAttributes(of id: NodeID) -> stat? {
        guard let status = names.status(of: id.rawValue) else { return nil }
        var attributes = stat()
        attributes.st_ino = ino_t(truncatingIfNeeded: VirtualDirectories.inode(of: id.rawValue))
        // fusermount3 mounts only where the mode lets its user write. The daemon refuses writes in
        // any case.
        attributes.st_mode = S_IFDIR | (status.isMountpoint ? 0o755 : 0o555) & (names.isPrivate ? 0o700 : 0o777)
        attributes.st_nlink = nlink_t(truncatingIfNeeded: 2 + status.entries)
        attributes.st_uid = geteuid()
        attributes.st_gid = getegid()
        attributes.st_blksize = 4096
        let time = timespec(
            tv_sec: Int(truncatingIfNeeded: status.changed / 1_000_000_000),
            tv_nsec: Int(truncatingIfNeeded: status.changed % 1_000_000_000))
        (attributes.st_atim, attributes.st_mtim, attributes.st_ctim) = (time, time, time)
        return attributes
    }

    func replyVirtualAttributes(_ request: consuming Request, _ id: NodeID) {
        guard var attributes = virtualAttributes(of: id) else {
            request.reply(error: ESTALE)
            return
        }
        // Every path lookup begins with these attributes. A change invalidates them, but a short
        // timeout shows sooner that the daemon has died.
        let timeout = min(policy.timeout, Self.rootTimeout)
        if request.wantsBirth {
            request.reply(attributes: attributes, birth: nil, timeout: timeout)
        } else {
            request.reply(attributes: &attributes, timeout: timeout)
        }
    }

    /// Lists `.`, `..`, then the names. See `VirtualDirectories.listing` for the positions.
    func replyVirtualListing(_ request: consuming Request, _ id: NodeID, _ size: Int, _ offset: UInt64, plus: Bool) {
        guard let entries = names.listing(of: id.rawValue), let parent = names.status(of: id.rawValue)?.parent else {
            request.reply(error: ESTALE)
            return
        }
        var listing = Listing(buffer: request.worker.pointee.buffer, size: min(size, Worker.bufferSize), plus: plus)
        if kernelOpens, offset == 0, request.caller.pid == rootLister.load(ordering: .acquiring) {
            var parameters = EntryParameters()
            parameters.attr.st_ino = 1
            parameters.attr.st_mode = S_IFDIR
            listing.add(&parameters, ".", next: UInt64.random(in: 1 << 61..<1 << 62))
            request.reply(bytes: listing.buffer, count: listing.used)
            return
        }
        for (position, dots, target) in [(1 as UInt64, ".", id.rawValue), (2, "..", parent)] where offset < position {
            var parameters = EntryParameters()
            parameters.attr.st_ino = ino_t(truncatingIfNeeded: VirtualDirectories.inode(of: target))
            parameters.attr.st_mode = S_IFDIR
            guard listing.hasRoom(for: dots) else { break }
            listing.add(&parameters, dots, next: position)
        }
        for (name, position, entry) in entries where position > offset {
            var parameters = EntryParameters()
            switch entry {
            case .directory(let directory):
                parameters.attr.st_ino = ino_t(truncatingIfNeeded: VirtualDirectories.inode(of: directory))
                parameters.attr.st_mode = S_IFDIR
            case .scope(let scope):
                let shown = scope.isFile ? scope.nodes.document?.node?.id ?? 0 : scope.rootNode
                guard let node = tree.nodes.find(shown) else { continue }
                parameters.attr.st_ino = ino_t(
                    truncatingIfNeeded: tree.devices.shown(inode: node.pointee.key.inode, device: node.pointee.key.device))
                parameters.attr.st_mode = node.pointee.type
            }
            let hasRoom = withCString(name.bytes) { text -> Bool in
                guard listing.hasRoom(for: text) else { return false }
                listing.add(&parameters, text, next: position)
                return true
            }
            if !hasRoom { break }
        }
        request.reply(bytes: listing.buffer, count: listing.used)
    }

    /// Keeps the root's listing out of the kernel's cache.
    ///
    /// It matters if the kernel opens directories by itself. A program that reads a cached listing
    /// can hold its page's lock forever, and so block all programs that list the root
    /// (docs/decisions/requests.md). Called by the thread that has mounted the view, before
    /// other processes can use it.
    ///
    /// The kernel adds an entry to the cached ones if it lies where the last one ended
    /// (fs/fuse/readdir.c, fuse_add_dirent_to_cache). It uses them once a listing has ended there.
    /// So one listing ends after its first entry, at a position from which no other will ever
    /// begin.
    public func keepRootListingUncached(_ root: borrowing FileDescriptor) {
        guard kernelOpens, let directory = try? FileDescriptor.openAt(root.number, ".".utf8, O_RDONLY | O_DIRECTORY) else { return }
        rootLister.store(clinux_gettid(), ordering: .releasing)
        defer { rootLister.store(-1, ordering: .releasing) }
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 16) { _ = clinux_getdents(directory.number, $0.baseAddress!, $0.count) }
    }
}
