import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Replies with nodes: the one place where lookup counts are handed out, and undone when the reply did not arrive.
extension ViewFS {
    /// A file's attributes with an inode number that is unique in the mount.
    @inline(__always)
    func attributes(_ status: borrowing FileStatus) -> stat {
        var attributes = status.st
        let (inode, device) = (UInt64(truncatingIfNeeded: attributes.st_ino), UInt64(truncatingIfNeeded: attributes.st_dev))
        attributes.st_ino = ino_t(truncatingIfNeeded: tree.devices.shown(inode: inode, device: device))
        return attributes
    }

    /// Opens the entry `name` of a directory, O_PATH. Follows no link, never leaves the directory, and enters another filesystem
    /// only if the mount does. Returns a descriptor or a negative error number.
    @inline(__always)
    func open(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) -> Int32 {
        let result = tree.evictingIfNeeded {
            clinux_open_beneath(directory, name, clinux_O_PATH | O_NOFOLLOW, 0, scope.crossesMounts)
        }
        // Another filesystem mounted here is not part of the grant.
        return result == -EXDEV ? -EACCES : result
    }

    /// Interns the file behind a descriptor, found as `name` (nil: it has none), and describes it for the kernel. Takes ownership
    /// of the descriptor. Returns 0 or a positive error number.
    @inline(__always)
    func enter(
        _ descriptor: Int32, _ name: UnsafePointer<CChar>?, found parent: (id: NodeID, node: NodePointer),
        into parameters: inout EntryParameters
    ) -> Int32 {
        var status = FileStatus()
        let result = clinux_statx(descriptor, nil, &status)
        if result < 0 {
            _ = clinux_close(descriptor)
            return Errno.number(of: result)
        }
        let found = parent.node.pointee.withOwner {
            tree.intern(FileDescriptor(owning: descriptor), status, in: $0, found: parent.id.rawValue, as: name)
        }
        guard let id = found, let node = tree.nodes.find(id) else { return ENFILE }
        if hasTypeMismatch(id, node, status) { return EIO }
        if leaves(with: parent.node, id) {
            tree.forget(id, 1)
            return EACCES
        }
        describe(id, node, status, found: parent, into: &parameters)
        return 0
    }

    /// As `enter`, for an entry whose file the kernel may already know: one statx(2) tells what is there at one moment, so nothing
    /// must be held. False when the file is new, invisible, or a mount point (STATX_ATTR_MOUNT_ROOT, which is as old as
    /// STATX_MNT_ID: Linux 5.8).
    @inline(__always)
    func enterKnown(
        _ name: UnsafePointer<CChar>, in directory: Int32, found parent: (id: NodeID, node: NodePointer),
        into parameters: inout EntryParameters
    ) -> Bool {
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0, status.has_mount_id, !status.is_mount_root else { return false }
        let found = parent.node.pointee.withOwner { tree.internKnown(status, in: $0, found: parent.id.rawValue, as: name) }
        guard let id = found, let node = tree.nodes.find(id), !hasTypeMismatch(id, node, status) else { return false }
        if leaves(with: parent.node, id) {
            tree.forget(id, 1)
            return false
        }
        describe(id, node, status, found: parent, into: &parameters)
        return true
    }

    /// Whether a file was interned as a node of another type, which only happens when a broken or hostile server reuses its number;
    /// the kernel refuses it as well (fs/fuse/inode.c, fuse_iget). Undoes the lookup.
    @inline(__always)
    private func hasTypeMismatch(_ id: UInt64, _ node: NodePointer, _ status: borrowing FileStatus) -> Bool {
        if node.pointee.type == status.st.st_mode & S_IFMT { return false }
        tree.forget(id, 1)
        return true
    }

    @inline(__always)
    private func describe(
        _ id: UInt64, _ node: NodePointer, _ status: borrowing FileStatus, found parent: (id: NodeID, node: NodePointer),
        into parameters: inout EntryParameters
    ) {
        let now = Clock.monotonic
        node.pointee.found.store(now, ordering: .relaxed)
        parent.node.pointee.renewed.store(now, ordering: .relaxed)
        if node.pointee.type == S_IFDIR { watch(id, node) }
        parameters.ino = id
        parameters.generation = UInt64(truncatingIfNeeded: generation)
        parameters.attr = attributes(status)
        // The kernel may have just forgotten the node; its FORGET is on the way.
        if kernelOpens, let time = shownTime(of: node) { parameters.attr.st_mtim = time }
        if mayCacheNames(of: parent.node) {
            parameters.attr_timeout = attributeTimeout(of: node, parameters.attr.st_mode)
            parameters.entry_timeout = policy.nameTimeout
        }
    }

    /// Watches a directory for changes beside the mount, before the kernel can cache anything of it.
    @inline(never)
    func watch(_ id: UInt64, _ node: NodePointer) {
        guard !node.pointee.isWatched.load(ordering: .relaxed) else { return }
        let descriptor = tree.pin(node)
        if descriptor >= 0 { hostWatch.watch(id, node, descriptor: descriptor) }
        tree.unpin(id, node)
    }

    /// False where programs lock files, and where another grant of the mount reaches the same files.
    @inline(__always)
    private func mayCacheNames(of directory: NodePointer) -> Bool {
        !directory.pointee.isShared.load(ordering: .relaxed) && !directory.pointee.bypassesCache
    }

    /// How long the kernel may cache a file's attributes. Not at all
    /// - where a write clears set-id bits: the kernel is not told, and would go on running the file with them;
    /// - for a second after one of several names was removed: the kernel decrements the link count by itself after the reply
    ///   (fs/fuse/dir.c, fuse_entry_unlinked), even when another reply has reported the lower count meanwhile, and would then show
    ///   one link too few for as long as it caches them.
    @inline(__always)
    func attributeTimeout(of node: NodePointer, _ mode: mode_t) -> Double {
        if mode & S_IFMT == S_IFREG && mode & (S_ISUID | S_ISGID) != 0 { return 0 }
        let unlinked = node.pointee.unlinked.load(ordering: .relaxed)
        return unlinked != 0 && Clock.monotonic &- unlinked < 1_000_000_000 ? 0 : policy.timeout
    }

    /// Before a name is removed or replaced: records that for a file with more names.
    @inline(__always)
    func recordUnlink(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) {
        if policy.timeout == 0 { return }
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0, status.st.st_nlink > 1, status.st.st_mode & S_IFMT != S_IFDIR else { return }
        tree.recordUnlink(of: NodeKey(status), in: scope, at: Clock.monotonic)
    }

    /// Looks `name` up and replies with its node. `cachesAttributes`: whether the kernel may keep what the reply says of the file.
    @inline(__always)
    func replyEntry(
        _ request: consuming Request, _ name: UnsafePointer<CChar>, in directory: Int32, found parent: (id: NodeID, node: NodePointer),
        cachesAttributes: Bool = true
    ) {
        var parameters = EntryParameters()
        let descriptor = parent.node.pointee.withOwner { open(name, in: directory, of: $0) }
        if descriptor < 0 {
            guard descriptor == -ENOENT, policy.negativeTimeout > 0, mayCacheNames(of: parent.node) else {
                request.reply(failure: descriptor)
                return
            }
            parameters.entry_timeout = policy.negativeTimeout
            _ = request.reply(entry: &parameters)
            return
        }
        let error = enter(descriptor, name, found: parent, into: &parameters)
        if !cachesAttributes { parameters.attr_timeout = 0 }
        if error != 0 {
            request.reply(error: error)
        } else if !request.reply(entry: &parameters) {
            tree.forget(parameters.ino, 1)
        }
    }

    static func lookup(_ view: ViewFS, _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>) {
        if parent.isVirtual { return view.lookupVirtual(request, parent, name) }
        if isDots(name) {
            request.reply(error: ESTALE)
            return
        }
        view.onNode(request, parent, for: .read, name: name, isLookup: true) { request, node, descriptor in
            if view.isDocumentDirectory(parent, node), view.concernsDocument(parent, node, name) {
                view.replyDocument(request, name, found: (parent, node))
                return
            }
            if node.pointee.wasListedBare.load(ordering: .relaxed) { node.pointee.withOwner { $0.readdirPlus.recordLookup() } }
            view.replyEntry(request, name, in: descriptor, found: (parent, node))
        }
    }

    /// Drops lookups. Always passes: what the kernel forgets must be forgotten here.
    func forget(_ node: NodeID, _ count: UInt64, slot: Int) {
        if kernelOpens { settleTime(before: node, slot: slot) }
        if node.isVirtual { names.forget(node.rawValue, count) } else { tree.forget(node.rawValue, count) }
    }
}

/// `.` and `..`, which the kernel resolves by itself and which must never reach a system call.
@inline(__always)
func isDots(_ name: UnsafePointer<CChar>) -> Bool {
    name[0] == 0x2E && (name[1] == 0 || (name[1] == 0x2E && name[2] == 0))
}
