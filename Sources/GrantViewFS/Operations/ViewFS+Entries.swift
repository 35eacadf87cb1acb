import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Everything that answers with a node: one place where lookup counts are handed out and, when the answer did not arrive, taken back.
extension ViewFS {
    /// Attributes as the mount shows them: the file's own, with an inode number that is unique in the mount.
    @inline(__always)
    func attributes(_ status: borrowing FileStatus) -> stat {
        var attributes = status.st
        let (inode, device) = (UInt64(truncatingIfNeeded: attributes.st_ino), UInt64(truncatingIfNeeded: attributes.st_dev))
        attributes.st_ino = ino_t(truncatingIfNeeded: tree.devices.shown(inode: inode, device: device))
        return attributes
    }

    /// Opens the entry `name` of a directory as a path. Never follows a link, never leaves the directory, never enters another
    /// filesystem unless the mount does. Returns a descriptor or a negative error number.
    @inline(__always)
    func open(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) -> Int32 {
        let result = tree.evictingIfNeeded {
            clinux_open_beneath(directory, name, clinux_O_PATH | O_NOFOLLOW, 0, scope.crossesMounts)
        }
        // Another filesystem mounted here is not part of the grant.
        return result == -EXDEV ? -EACCES : result
    }

    /// Makes (or counts) the node behind a descriptor, found as `name` (nil: it has none), and describes it for the kernel. Takes the descriptor over.
    /// Returns 0 or a positive error number.
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

    /// As `enter`, for the entry `name` of a directory if the kernel knows its file: by one look at the name, which says what is there and how it is at
    /// one moment, so nothing needs to be held meanwhile. False when it is new, cannot be seen, or is where something else is mounted
    /// (STATX_ATTR_MOUNT_ROOT, which is as old as STATX_MNT_ID: Linux 5.8).
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

    /// Whether a file was taken for the node of another, which has its number and another type. Only a server that is broken or hostile has such; the
    /// kernel refuses them as well (fs/fuse/inode.c, fuse_iget). The lookup is taken back.
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
        // The kernel may have forgotten it just now, which is still on its way here.
        if kernelOpens, let time = shownTime(of: node) { parameters.attr.st_mtim = time }
        if mayCacheNames(of: parent.node) {
            parameters.attr_timeout = attributeTimeout(of: node, parameters.attr.st_mode)
            parameters.entry_timeout = policy.nameTimeout
        }
    }

    /// Has changes told that are made in a directory beside the mount, from before the kernel can keep anything of it.
    @inline(never)
    func watch(_ id: UInt64, _ node: NodePointer) {
        guard let hostWatch, !node.pointee.isWatched.load(ordering: .relaxed) else { return }
        let descriptor = tree.pin(node)
        if descriptor >= 0 { hostWatch.watch(id, node, descriptor: descriptor) }
        tree.unpin(id, node)
    }

    /// Not where programs lock files, and not where another grant of the mount leads to the same files.
    @inline(__always)
    private func mayCacheNames(of directory: NodePointer) -> Bool {
        !directory.pointee.isShared.load(ordering: .relaxed) && !directory.pointee.bypassesCache
    }

    /// For how long the kernel may keep a file's attributes. Not at all
    /// - where a write clears set-id bits: the kernel does not hear of it, and would go on running the file with them;
    /// - for a second after one of several names was removed: the kernel counts that link down by itself once it has the answer
    ///   (fs/fuse/dir.c, fuse_entry_unlinked), also when another answer has told it of the lower count meanwhile, and would then show
    ///   one link too few for as long as it keeps them.
    @inline(__always)
    func attributeTimeout(of node: NodePointer, _ mode: mode_t) -> Double {
        if mode & S_IFMT == S_IFREG && mode & (S_ISUID | S_ISGID) != 0 { return 0 }
        let unlinked = node.pointee.unlinked.load(ordering: .relaxed)
        return unlinked != 0 && Clock.monotonic &- unlinked < 1_000_000_000 ? 0 : policy.timeout
    }

    /// Before a name is removed, or renamed over: notes it with its file if that has more names.
    @inline(__always)
    func recordUnlink(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) {
        if policy.timeout == 0 { return }
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0, status.st.st_nlink > 1, status.st.st_mode & S_IFMT != S_IFDIR else { return }
        tree.recordUnlink(of: NodeKey(status), in: scope, at: Clock.monotonic)
    }

    /// Looks `name` up and replies with its node.
    @inline(__always)
    func replyEntry(
        _ request: consuming Request, _ name: UnsafePointer<CChar>, in directory: Int32, found parent: (id: NodeID, node: NodePointer)
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

    /// Takes lookups back. Always passes: what the kernel forgets must be forgotten here.
    func forget(_ node: NodeID, _ count: UInt64, slot: Int) {
        if kernelOpens { settleTime(before: node, slot: slot) }
        if node.isVirtual { names.forget(node.rawValue, count) } else { tree.forget(node.rawValue, count) }
    }
}

/// `.` and `..`, which the kernel resolves by itself and which must never reach a file system call.
@inline(__always)
func isDots(_ name: UnsafePointer<CChar>) -> Bool {
    name[0] == 0x2E && (name[1] == 0 || (name[1] == 0x2E && name[2] == 0))
}
