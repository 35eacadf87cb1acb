import CLinux
import Coordinator
import FUSEKit
import Glibc
import GrantModel
import LinuxFS
import Synchronization
import ViewTree

// How grants come in: the road of the administrator, never of a request.
extension ViewFS {
    /// Makes a scope for a grant whose directory is open, without showing it yet.
    /// `descriptor`: O_PATH, verified to be the bookmarked directory. Called by one thread at a time.
    public func makeScope(
        for grant: GrantID, activation: Int64, readOnly: Bool, directory descriptor: consuming FileDescriptor, crossesMounts: Bool
    ) throws(Errno) -> Scope {
        let status = try descriptor.status()
        guard status.st.st_mode & S_IFMT == S_IFDIR else { throw Errno(ENOTDIR) }
        guard let id = coordinator.makeScope(refusing: readOnly ? .readOnly : .none) else { throw Errno(ENOSPC) }
        // Before the descriptor is given away.
        audit?.note(id.rawValue, of: grant)
        var number: UInt64 = 0
        let hasNumber = clinux_mount_number(descriptor.number, &number) == 0
        let nodes = tree.addScope(
            id.rawValue, handleBase: handleBase(descriptor, status), crossesMounts: crossesMounts, asksCallers: hasServer(descriptor))
        hostWatch?.begin(nodes, directory: descriptor)
        guard let root = tree.internRoot(descriptor, status, of: nodes) else { throw Errno(ENOMEM) }
        if let node = tree.nodes.find(root) { watch(root, node) }
        return Scope(
            id: id, grant: grant, activation: activation, nodes: nodes, rootNode: root, rootStatus: status,
            mount: hasNumber ? number : nil, readOnly: readOnly)
    }

    /// Whether a server or another daemon decides what each user may do there, which may be less than the kernel in front believes: NFS with its
    /// root squashed, sshfs. f_type of statfs(2), as in linux/magic.h.
    private func hasServer(_ directory: borrowing FileDescriptor) -> Bool {
        let (nfs, fuse, cifs, smb, ceph, afs, plan9): (Int64, Int64, Int64, Int64, Int64, Int64, Int64) = (
            0x6969, 0x6573_5546, 0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x5346_414F, 0x0102_1997
        )
        var (type, number): (Int64, UInt64) = (0, 0)
        guard clinux_fstatfs_type(directory.number, &type, &number) == 0 else { return false }
        return [nfs, fuse, cifs, smb, ceph, afs, plan9].contains(type)
    }

    /// What open_by_handle_at(2) takes as the filesystem, if this process may open by handle there at all.
    private func handleBase(_ directory: borrowing FileDescriptor, _ status: FileStatus) -> HandleBase? {
        let number = directory.number
        let make: () -> HandleBase? = {
            let opened = clinux_reopen(number, O_RDONLY | O_DIRECTORY)
            guard opened >= 0 else { return nil }
            let base = FileDescriptor(owning: opened)
            var handle = clinux_handle()
            guard clinux_name_to_handle(number, &handle) == 0 else { return nil }
            let again = clinux_open_by_handle(opened, &handle, clinux_O_PATH)
            guard again >= 0 else { return nil }
            _ = clinux_close(again)
            return HandleBase(base)
        }
        return status.has_mount_id ? handleBases.base(of: status.mount_id, make) : make()
    }

    /// Whether the granted directory still exists: removed directories have no name any more.
    public func isRemoved(_ scope: Scope) -> Bool {
        var isRemoved = true
        tree.withRoot(of: scope.nodes) { descriptor in
            var status = FileStatus()
            isRemoved =
                descriptor == -ESTALE || (descriptor >= 0 && clinux_statx(descriptor, nil, &status) == 0 && status.st.st_nlink == 0)
        }
        return isRemoved
    }

    /// Where the granted directory is now. Its filesystem is not asked.
    public func path(of scope: Scope) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: 16_384)
        var count = 0
        tree.withRoot(of: scope.nodes) { descriptor in
            guard descriptor >= 0 else { return }
            count = buffer.withUnsafeMutableBytes {
                clinux_descriptor_path(descriptor, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
            }
        }
        return count > 0 ? Array(buffer.prefix(count)) : nil
    }

    /// Finds the scopes of which one's directory lies in another's, and has the kernel ask for everything below them, so that what is
    /// changed through one shows through the other at once. A scope once found stays so.
    public func markOverlaps() {
        let slash = UInt8(ascii: "/")
        let placed = root.open.compactMap { _, scope in path(of: scope).map { (path: $0 + ($0.last == slash ? [] : [slash]), scope: scope) }
        }
        var above: [(path: [UInt8], scope: Scope)] = []
        for place in placed.sorted(by: { $0.path.lexicographicallyPrecedes($1.path) }) {
            // In this order everything below a directory follows it at once.
            while let last = above.last, !place.path.starts(with: last.path) { above.removeLast() }
            if let last = above.last {
                for scope in [last.scope, place.scope] { scope.nodes.distrust.bitwiseOr(ScopeNodes.overlap, ordering: .relaxed) }
            }
            above.append(place)
        }
    }

    /// How many inodes the kernel knows of a scope, how many operations are in it, and what has gone through it.
    public func load(of scope: Scope) -> (inodes: Int, inFlight: Int, counts: ScopeCounts) {
        (scope.nodes.count, coordinator.visits(in: scope.id).count, coordinator.counts(of: scope.id))
    }

    /// Descriptors that nodes, open files and open directories hold.
    public var descriptorCount: Int { tree.descriptorsInUse + files.count + directories.count }

    /// Requests for a lock that wait for somebody else's.
    public var waitingLockCount: Int { locks.waitingCount }

    /// Whether a withdrawal of everything was carried through.
    public func isClosed(_ scope: Scope) -> Bool { scope.isClosed.load(ordering: .acquiring) || session == nil }

    /// Gives memory that was needed for what the kernel has forgotten back to it. Not for the way of a request.
    public func trim() {
        let bytes = tree.trim() + files.trim() + directories.trim()
        let untrimmed = trimmed.wrappingAdd(bytes, ordering: .relaxed).newValue
        // Names and indices as well. That stops whoever allocates for a moment, so it has to be worth it, or nothing is going on.
        guard untrimmed > 0, bytes == 0 || untrimmed > Self.worthTrimming else { return }
        trimmed.store(0, ordering: .relaxed)
        clinux_trim_memory()
    }

    /// Refused operations of a scope since the last call, and the uid and pid of the last; nil when there were none.
    public func takeDenials(of scope: Scope) -> (count: UInt64, uid: UInt32, pid: Int32)? {
        let gate = coordinator.gate(scope.id)
        let count = gate.pointee.denials.exchange(0, ordering: .acquiring)
        if count == 0 { return nil }
        let last = gate.pointee.lastDenied.load(ordering: .relaxed)
        return (count, UInt32(last >> 32), Int32(bitPattern: UInt32(truncatingIfNeeded: last)))
    }

    /// Makes the kernel ask anew for names of the root. Holding no lock.
    public func forgetRootNames(_ names: some Sequence<GrantName>) {
        guard let session else { return }
        for name in names { _ = session.notifier.expireName(name.bytes, in: .root) }
        _ = session.notifier.forgetData(.root)
    }
}
