import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Replies with nodes. Lookup counts are handed out only here, and undone if the reply did not
// arrive.
extension ViewFS {
    /// Returns a file's attributes with an inode number that is unique in the mount.
    @inline(__always)
    func attributes(_ status: borrowing FileStatus) -> stat {
        var attributes = status.st
        let (inode, device) = (UInt64(truncatingIfNeeded: attributes.st_ino), UInt64(truncatingIfNeeded: attributes.st_dev))
        attributes.st_ino = ino_t(truncatingIfNeeded: tree.devices.shown(inode: inode, device: device))
        if let unmapped {
            // For the kernel a number is a user, who would have this owner's rights.
            if attributes.st_uid == unmapped.user { attributes.st_uid = .max }
            if attributes.st_gid == unmapped.group { attributes.st_gid = .max }
        }
        return attributes
    }

    /// Opens the entry `name` of a directory with O_PATH.
    ///
    /// Follows no link, never leaves the directory, and enters another filesystem only if the scope
    /// does. Returns a descriptor or a negative error number.
    @inline(__always)
    func open(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) -> Int32 {
        let result = tree.evictingIfNeeded {
            clinux_open_beneath(directory, name, clinux_O_PATH | O_NOFOLLOW, 0, scope.crossesMounts)
        }
        // Another filesystem mounted here is not part of the grant.
        return result == -EXDEV ? -EACCES : result
    }

    /// Interns the file behind a descriptor and describes it for the kernel.
    ///
    /// The file was found as `name`, nil if it has none. Takes ownership of the descriptor. Returns
    /// 0 or a positive error number. `moment`: see `settleMoves`.
    @inline(__always)
    func enter(
        _ descriptor: Int32, _ name: UnsafePointer<CChar>?, found parent: (id: NodeID, node: NodePointer), since moment: UInt64,
        _ origin: NameOrigin = .requested, into parameters: inout EntryParameters
    ) -> Int32 {
        var status = FileStatus()
        let result = clinux_statx(descriptor, nil, &status)
        if result < 0 {
            _ = clinux_close(descriptor)
            return Errno.number(of: result)
        }
        let judged = judge(name, status, in: parent, origin)
        if let judged, judged.finding.isHidden {
            _ = clinux_close(descriptor)
            return ENOENT
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
        settleMoves(since: moment, of: id, node)
        if let judged { apply(judged, to: id, node, links: status.st.st_nlink) }
        describe(id, node, status, found: parent, into: &parameters)
        return 0
    }

    /// Does the same as `enter`, for an entry whose file the kernel may already know.
    ///
    /// `name` is from a listing, `listed` what the rules said of it. One statx(2) describes the entry at one
    /// moment, so no descriptor must be held. Returns false if the file is new, invisible, or a mount point
    /// (STATX_ATTR_MOUNT_ROOT, available since Linux 5.8 like STATX_MNT_ID).
    @inline(__always)
    func enterKnown(
        _ name: UnsafePointer<CChar>, _ listed: FoundName?, in directory: Int32, found parent: (id: NodeID, node: NodePointer),
        into parameters: inout EntryParameters
    ) -> Bool {
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0, status.has_mount_id, !status.is_mount_root else { return false }
        let judged = judge(name, status, in: parent, .listed(listed))
        if let judged, judged.finding.isHidden { return false }
        let found = parent.node.pointee.withOwner { tree.internKnown(status, in: $0, found: parent.id.rawValue, as: name) }
        guard let id = found, let node = tree.nodes.find(id), !hasTypeMismatch(id, node, status) else { return false }
        if leaves(with: parent.node, id) {
            tree.forget(id, 1)
            return false
        }
        if let judged { apply(judged, to: id, node, links: status.st.st_nlink) }
        describe(id, node, status, found: parent, into: &parameters)
        return true
    }

    /// Whether a file was interned as a node of another type. Undoes the lookup if so.
    ///
    /// This happens only if a broken or hostile server reuses the file's number. The kernel refuses
    /// such a reply as well (fs/fuse/inode.c, fuse_iget).
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
        // The kernel may have dropped the node while its FORGET is still on the way.
        if kernelOpens, let time = shownTime(of: node) { parameters.attr.st_mtim = time }
        if mayCacheNames(of: parent.node) {
            parameters.attr_timeout = attributeTimeout(of: node, parameters.attr.st_mode)
            parameters.entry_timeout = policy.nameTimeout
        }
    }

    /// Watches a directory for host changes, before the kernel can cache any entry of it.
    @inline(never)
    func watch(_ id: UInt64, _ node: NodePointer) {
        guard !node.pointee.isWatched.load(ordering: .acquiring) else { return }
        let descriptor = tree.pin(node)
        if descriptor >= 0 { hostWatch.watch(id, node, descriptor: descriptor) }
        tree.unpin(id, node)
    }

    /// Whether the kernel may cache names of a directory.
    ///
    /// Returns false if programs lock its files, or if another grant of the mount reaches the same
    /// files.
    @inline(__always)
    private func mayCacheNames(of directory: NodePointer) -> Bool {
        !directory.pointee.isShared.load(ordering: .relaxed) && !directory.pointee.bypassesCache
    }

    /// How long the kernel may cache a file's attributes, in seconds. 0 in two cases:
    /// - A write would clear set-id bits. The kernel is not told and would continue to run the file
    ///   with them.
    /// - One of several names was removed within the last second. The kernel decrements the link
    ///   count itself after the reply (fs/fuse/dir.c, fuse_entry_unlinked), even if another reply
    ///   has reported the lower count. It would then show one link too few while it caches them.
    @inline(__always)
    func attributeTimeout(of node: NodePointer, _ mode: mode_t) -> Double {
        if mode & S_IFMT == S_IFREG && mode & (S_ISUID | S_ISGID) != 0 { return 0 }
        let unlinked = node.pointee.unlinked.load(ordering: .relaxed)
        return unlinked != 0 && Clock.monotonic &- unlinked < 1_000_000_000 ? 0 : policy.timeout
    }

    /// Records when a file with more names loses one. Call it before that.
    @inline(__always)
    func recordUnlink(_ name: UnsafePointer<CChar>, in directory: Int32, of scope: ScopeNodes) {
        if policy.timeout == 0 { return }
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0, status.st.st_nlink > 1, status.st.st_mode & S_IFMT != S_IFDIR else { return }
        tree.recordUnlink(of: NodeKey(status), in: scope, at: Clock.monotonic)
    }

    /// Looks up `name` and replies with its node.
    ///
    /// `cachesAttributes`: whether the kernel may cache the attributes in the reply.
    @inline(__always)
    func replyEntry(
        _ request: consuming Request, _ name: UnsafePointer<CChar>, in directory: Int32, found parent: (id: NodeID, node: NodePointer),
        cachesAttributes: Bool = true
    ) {
        var parameters = EntryParameters()
        let moment = hostWatch.renamesSeen
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
        let error = enter(descriptor, name, found: parent, since: moment, into: &parameters)
        if !cachesAttributes { parameters.attr_timeout = 0 }
        if error != 0 {
            if error == ENOENT { countHidden(name, in: parent, for: request.caller) }
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

    /// FORGET: drops lookups. It is never refused, because the kernel has dropped them already.
    func forget(_ node: NodeID, _ count: UInt64, slot: Int) {
        if kernelOpens { settleTime(before: node, slot: slot) }
        if node.isVirtual { names.forget(node.rawValue, count) } else { tree.forget(node.rawValue, count) }
    }
}

/// Whether a name is `.` or `..`.
///
/// The kernel resolves these itself, and they must never reach a system call.
@inline(__always)
func isDots(_ name: UnsafePointer<CChar>) -> Bool {
    name[0] == 0x2E && (name[1] == 0 || (name[1] == 0x2E && name[2] == 0))
}
