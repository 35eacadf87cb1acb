import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

extension ViewFS {
    static func opendir(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: UnsafeMutablePointer<OpenFileInfo>) {
        if view.kernelOpens {
            request.reply(error: ENOSYS)
            return
        }
        if id.isVirtual {
            info.pointee.fh = 0
            _ = request.reply(file: info)
            return
        }
        view.onNode(request, id, for: .read) { request, node, descriptor in
            let user = request.caller.uid
            let hasRoom = view.tree.hasRoom(scope: node.pointee.scope, user: user)
            let opened = hasRoom ? view.tree.evictingIfNeeded { clinux_reopen(descriptor, O_RDONLY | O_DIRECTORY) } : -ENFILE
            if opened >= 0, view.leavesDirectoryAccessTimes.load(ordering: .relaxed) { view.keepAccessTime(opened) }
            let unwritten = view.audit(
                request, node, opened < 0 ? descriptor : opened, error: opened < 0 ? Errno.number(of: opened) : 0)
            if opened < 0 || unwritten != 0 {
                if opened >= 0 { _ = clinux_close(opened) }
                request.reply(error: opened < 0 ? Errno.number(of: opened) : unwritten)
                return
            }
            // Before the handle is published: from then on the descriptor may be closed at any
            // time.
            var status = FileStatus()
            let isKnown = clinux_statx(opened, nil, &status) == 0
            let backing = FileDescriptor(owning: opened)
            // It would be listed as empty, and a program that mirrors it would empty its copy.
            if isKnown, status.st.st_nlink == 0, view.isGrantRoot(node) || view.wasOpenedByStaleName(node) {
                request.reply(error: ESTALE)
                return
            }
            guard view.tree.reserveShare(scope: node.pointee.scope, user: user),
                let handle = view.directories.add(
                    OpenDirectory(descriptor: backing, node: id.rawValue, scope: node.pointee.scope, user: user))
            else {
                request.reply(error: ENFILE)
                return
            }
            // As in `registerOpen`.
            let containment = node.pointee.containment.load(ordering: .sequentiallyConsistent)
            if containment & Containment.inherited != 0 { view.directories.inherit(containment, handle) }
            node.pointee.openers.wrappingAdd(1, ordering: .relaxed)
            info.pointee.fh = handle
            // The kernel may cache an unchanged directory, except for its own open, as in `open`. A
            // document's directory is excluded: its times do not show changes of the document.
            if !view.policy.distrustsData, isKnown, info.pointee.flags != 0, !view.isDocumentDirectory(id, node) {
                info.pointee.cache_readdir = 1
                let isKept = view.policy.writeBack || (view.hasUnchangedData(node, status) && view.shouldKeepListing(node))
                info.pointee.keep_cache = isKept ? 1 : 0
            }
            if !request.reply(file: info) { view.releaseDirectory(handle, of: id) }
        }
    }

    /// Whether a node is the granted directory itself.
    private func isGrantRoot(_ node: NodePointer) -> Bool { node.pointee.withOwner { $0.root?.key == node.pointee.key } }

    /// Whether the kernel should use its cached listing instead of a new one.
    ///
    /// A new listing also carries the attributes of all entries. The cached one is used while its
    /// attributes are valid. It is also used if programs looked up entries singly before (as git
    /// does), or did not read attributes.
    private func shouldKeepListing(_ directory: NodePointer) -> Bool {
        let age = Clock.monotonic &- directory.pointee.renewed.load(ordering: .relaxed)
        if age < policy.timeoutNanoseconds { return true }
        guard directory.pointee.withOwner({ $0.readdirPlus.omitsAttributes() }) else { return false }
        directory.pointee.wasListedBare.store(true, ordering: .relaxed)
        return true
    }

    static func releasedir(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: OpenFileInfo) {
        if info.fh != 0 { view.directories.markReleased(info.fh) }
        request.reply(error: 0)
        if info.fh != 0 { view.releaseDirectory(info.fh, of: id) }
    }

    private func releaseDirectory(_ handle: UInt64, of id: NodeID) {
        if let node = tree.nodes.find(id.rawValue) { node.pointee.openers.wrappingSubtract(1, ordering: .relaxed) }
        directories.drop(handle)
    }

    static func fsyncdir(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, dataOnly: Bool, _ info: OpenFileInfo) {
        if id.isVirtual || (info.fh == 0 && !view.kernelOpens) {
            request.reply(error: 0)
            return
        }
        view.onDirectory(request, info.fh, id) { request, directory in
            let result = clinux_fsync(directory.pointee.descriptor, dataOnly)
            if result == 0, let node = view.tree.nodes.find(id.rawValue), let document = view.document(of: id, node) {
                return reply(request, view.syncParent(of: document))
            }
            reply(request, result)
        }
    }

    static func readdir(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ size: Int, _ offset: UInt64, _ info: OpenFileInfo, plus: Bool
    ) {
        if id.isVirtual { return view.replyVirtualListing(request, id, size, offset, plus: plus) }
        view.onDirectory(request, info.fh, id) { request, directory in
            guard let node = view.tree.nodes.find(id.rawValue) else {
                request.reply(error: ESTALE)
                return
            }
            var listing = Listing(buffer: request.worker.pointee.buffer, size: min(size, Worker.bufferSize), plus: plus)
            let document = view.document(of: id, node)
            if let document, offset == 0 { view.addDocument(document, to: &listing) }
            let offset = document != nil && offset == Self.documentPosition ? 0 : offset
            let filter = ListingFilter(view, (id, node), directory.pointee.descriptor)
            if filter.isHidden {
                request.reply(error: EACCES)
                return
            }
            let error = directory.pointee.stream.withLock { stream -> Int32 in
                let error = stream.seek(offset, in: directory.pointee.descriptor)
                if error != 0 { return error }
                let omitsAttributes = Self.omitsAttributes(&stream, offset, node)
                if offset == 0 { stream.familiarity = node.pointee.renewed.load(ordering: .relaxed) != 0 ? 4 : 0 }
                var familiarity = stream.familiarity
                let ended = stream.forEach(in: directory.pointee.descriptor) {
                    if let document, document.isNamed($0.name) || DocumentPlace.isReserved($0.name) { return true }
                    if DocumentPlace.isWorkplace($0.name) { return true }
                    let judged = filter.judge($0)
                    if let judged, judged.finding.isHidden { return true }
                    return view.add(
                        $0, judged, of: (id, node), directory.pointee.descriptor, bare: omitsAttributes, &familiarity, to: &listing)
                }
                stream.familiarity = familiarity
                return ended
            }
            // Entries before an error are returned. The error occurs again at the next call.
            if error != 0, listing.used == 0 {
                // A removed directory has no entries (getdents(2)), and the C library takes ENOENT
                // for the end of a listing.
                request.reply(error: error == ENOENT && view.isGrantRoot(node) ? ESTALE : error)
            } else if !request.reply(bytes: listing.buffer, count: listing.used) {
                listing.forEachNode { view.tree.forget($0, 1) }
            }
        }
    }

    /// Whether this part of a listing omits attributes: see `ReaddirPlusHeuristic`.
    private static func omitsAttributes(_ stream: inout DirectoryStream, _ offset: UInt64, _ node: NodePointer) -> Bool {
        if offset == 0 {
            stream.omitsAttributes = nil
            node.pointee.wasListedBare.store(false, ordering: .relaxed)
            return false
        }
        let omitsAttributes = stream.omitsAttributes ?? node.pointee.withOwner { $0.readdirPlus.omitsAttributes() }
        stream.omitsAttributes = omitsAttributes
        if omitsAttributes { node.pointee.wasListedBare.store(true, ordering: .relaxed) }
        return omitsAttributes
    }

    /// Adds one entry. Returns false if it does not fit.
    private func add(
        _ entry: DirectoryStream.Entry, _ judged: FoundName?, of parent: (id: NodeID, node: NodePointer), _ directory: Int32, bare: Bool,
        _ familiarity: inout Int8, to listing: inout Listing
    ) -> Bool {
        guard listing.hasRoom(for: entry.name) else { return false }
        var parameters = EntryParameters()
        if listing.plus, !bare, !isDots(entry.name) {
            find(entry.name, judged, of: parent, directory, &familiarity, into: &parameters)
        }
        if parameters.ino == 0 {
            parameters.attr.st_ino = ino_t(
                truncatingIfNeeded: tree.devices.shown(inode: entry.inode, device: parent.node.pointee.key.device))
            parameters.attr.st_mode = mode_t(truncatingIfNeeded: entry.type) << 12
        }
        listing.add(&parameters, entry.name, next: entry.offset)
        return true
    }

    /// Fills in an entry's node, or leaves `parameters` unchanged.
    ///
    /// For files that the kernel knows, one statx(2) of the name suffices. A new file is opened
    /// first, so that call would be wasted for it.
    private func find(
        _ name: UnsafePointer<CChar>, _ judged: FoundName?, of parent: (id: NodeID, node: NodePointer), _ directory: Int32,
        _ familiarity: inout Int8, into parameters: inout EntryParameters
    ) {
        if familiarity > 0 {
            if enterKnown(name, judged, in: directory, found: parent, into: &parameters) {
                familiarity = min(familiarity + 1, 8)
                return
            }
            familiarity -= 2
        }
        let moment = hostWatch.renamesSeen
        let descriptor = parent.node.pointee.withOwner { open(name, in: directory, of: $0) }
        if descriptor >= 0, enter(descriptor, name, found: parent, since: moment, .listed(judged), into: &parameters) != 0 {
            parameters = EntryParameters()
        }
    }
}
