import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

extension ViewFS {
    static func mkdir(_ view: ViewFS, _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>, _ mode: mode_t) {
        view.make(request, parent, name, mode, type: S_IFDIR) { clinux_mkdirat($0, name, $1) }
    }

    static func mknod(
        _ view: ViewFS, _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) {
        view.make(request, parent, name, mode, detail: kind(of: mode)) { clinux_mknodat($0, name, $1, device) }
    }

    static func symlink(
        _ view: ViewFS, _ request: consuming Request, _ target: UnsafePointer<CChar>, _ parent: NodeID, _ name: UnsafePointer<CChar>
    ) {
        view.make(request, parent, name, 0, type: S_IFLNK, detail: "to “\(String(cString: target))”") { directory, _ in
            clinux_symlinkat(target, directory, name)
        }
    }

    /// Creates `name` by `body` as the caller, and replies with its node.
    ///
    /// `body` gets the directory and the mode that the caller may set.
    private func make(
        _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>, _ mode: mode_t,
        type: mode_t = S_IFREG, detail: @autoclosure () -> String = "", _ body: (Int32, mode_t) -> Int32
    ) {
        if parent.isVirtual {
            request.reply(error: EACCES)
            return
        }
        onNode(request, parent, for: .write, name: name) { request, node, directory in
            if let document = document(of: parent, node, named: name) {
                // The document's name belongs to a regular file, which CREATE makes.
                request.reply(error: document.isNamed(name) && document.shown != nil ? EEXIST : EACCES)
                return
            }
            lastCalls.record(request.caller.pid, in: node.pointee.scope, installs: true)
            Identity.assumeMask(request.caller.umask)
            let mode = creationMode(mode, in: directory, for: request.caller)
            let result = audited(request, node, .entry(directory, name), detail: detail()) {
                making(((parent, node), directory, name, request.caller), type) {
                    Identity.withReserve(of: request.caller) { body(directory, mode) }
                }
            }
            if result < 0 { request.reply(failure: result) } else { replyEntry(request, name, in: directory, found: (parent, node)) }
        }
    }

    static func unlink(_ view: ViewFS, _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>, directory: Bool) {
        if parent.isVirtual {
            request.reply(error: EACCES)
            return
        }
        view.onNode(request, parent, for: .write, name: name) { request, node, descriptor in
            let result = view.audited(request, node, .entry(descriptor, name)) {
                if let document = view.document(of: parent, node, named: name) {
                    return view.unlink(document, name, directory: directory, as: request.caller)
                }
                return view.removing(((parent, node), descriptor, name, request.caller)) {
                    if !directory { view.recordUnlink(name, in: descriptor, of: node.pointee.owner) }
                    let held = view.pinBeforeRemoval(name, in: descriptor, of: node, directory: directory, request.caller)
                    let caller = request.caller
                    let result = Identity.asOwner(caller, has: { view.rights(of: caller, toRemove: name, from: descriptor) }) {
                        clinux_unlinkat(descriptor, name, directory)
                    }
                    if let held {
                        if result == 0 { view.tree.removed(held, name, from: parent.rawValue) }
                        view.tree.unpin(held)
                    }
                    return result
                }
            }
            reply(request, result)
        }
    }

    static func rename(
        _ view: ViewFS, _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>, _ newParent: NodeID,
        _ newName: UnsafePointer<CChar>, _ flags: UInt32
    ) {
        if parent.isVirtual || newParent.isVirtual {
            request.reply(error: EACCES)
            return
        }
        view.onNode(request, parent, for: .write, name: name, other: (newParent, newName)) { request, node, from in
            guard let target = view.tree.nodes.find(newParent.rawValue) else {
                request.reply(error: ESTALE)
                return
            }
            guard target.pointee.scope == node.pointee.scope else {
                request.reply(error: EXDEV)
                return
            }
            if let refusal = view.refusal(of: newParent, target, for: .write) {
                request.reply(error: refusal.error)
                return
            }
            let to = view.tree.pin(target)
            let isExchange = flags & renameExchange != 0
            let source = view.document(of: parent, node, named: name)
            let sink = view.document(of: newParent, target, named: newName)
            let result =
                to < 0
                ? to
                : view.audited(request, node, .entry(from, name), to: .entry(to, newName), detail: isExchange ? "exchanged" : "") {
                    if source != nil || sink != nil {
                        // Pinned before the rename, because afterwards this name does not lead to
                        // it.
                        let moving = view.tree.pinEntry(name, in: from, of: node.pointee.owner)
                        let result = view.rename(((from, name), source), ((to, newName), sink), flags, as: request.caller)
                        if let moving {
                            if result == 0 { view.tree.markNameless(moving) }
                            view.tree.unpin(moving)
                        }
                        return result
                    }
                    return view.renaming(
                        ((parent, node), from, name, request.caller), ((newParent, target), to, newName, request.caller),
                        isExchange: isExchange
                    ) {
                        // An exchange removes no name.
                        if !isExchange { view.recordUnlink(newName, in: to, of: target.pointee.owner) }
                        return Identity.withReserve(of: request.caller) {
                            view.rename((parent, from, name), (newParent, to, newName), flags, node, request.caller)
                        }
                    } undo: {
                        let flags = isExchange ? flags : renameNoReplace
                        return view.rename((newParent, to, newName), (parent, from, name), flags, node, request.caller)
                    }
                }
            view.tree.unpin(newParent.rawValue, target)
            reply(request, result)
        }
    }

    /// Does the same as `NodeTree.pinEntry`, for a name that is about to be removed.
    ///
    /// If the kernel opens files by itself, a program may have the file open.
    private func pinBeforeRemoval(
        _ name: UnsafePointer<CChar>, in descriptor: Int32, of directory: NodePointer, directory isDirectory: Bool, _ caller: Caller
    ) -> PinnedNode? {
        guard kernelOpens, !isDirectory else { return tree.pinEntry(name, in: descriptor, of: directory.pointee.owner) }
        let held = tree.pinOpenEntry(name, in: descriptor, of: directory.pointee.owner)
        // A server may not find a file without a name unless it is open.
        if let held, directory.pointee.usesCallerGroups { openBeforeChange(NodeID(held.id), held.node, as: caller) }
        return held
    }

    private typealias Name = (parent: NodeID, directory: Int32, text: UnsafePointer<CChar>)

    /// Renames, and updates the tree.
    private func rename(_ from: Name, _ to: Name, _ flags: UInt32, _ node: NodePointer, _ caller: Caller) -> Int32 {
        let moving = tree.pinEntry(from.text, in: from.directory, of: node.pointee.owner)
        let isLost = flags & renameExchange == 0
        let other =
            isLost
            ? pinBeforeRemoval(to.text, in: to.directory, of: node, directory: false, caller)
            : tree.pinEntry(to.text, in: to.directory, of: node.pointee.owner)
        let mayMove = {
            self.rights(of: caller, toRemove: from.text, from: from.directory)
                .intersection(self.rights(of: caller, toRemove: to.text, from: to.directory))
        }
        let result = Identity.asOwner(caller, has: mayMove) {
            clinux_renameat2(from.directory, from.text, to.directory, to.text, flags)
        }
        if let other {
            if result == 0, flags & renameExchange != 0 {
                tree.moved(other, from.text, to: from.parent.rawValue)
            } else if result == 0 {
                tree.removed(other, to.text, from: to.parent.rawValue)
            }
            tree.unpin(other)
        }
        if let moving {
            if result == 0 { tree.moved(moving, to.text, to: to.parent.rawValue) }
            tree.unpin(moving)
        }
        return result
    }

    /// The rights with which `caller` may remove or replace an entry.
    ///
    /// In a sticky directory, only its owner and that of the file may do so.
    private func rights(of caller: Caller, toRemove name: UnsafePointer<CChar>, from directory: Int32) -> Identity.FileRights {
        var status = FileStatus()
        guard clinux_statx(directory, nil, &status) == 0 else { return [] }
        guard status.st.st_mode & S_ISVTX != 0 else { return .ownership }
        let result = clinux_statx(directory, name, &status)
        if result != 0 { return result == -ENOENT ? .ownership : [] }
        // Also a capability of a user namespace needs a number for the group (fs/namei.c, check_sticky).
        guard clinux_other_maps_group(caller.pid, status.st.st_gid) else { return [] }
        return caller.rights(overFileOf: status.st.st_uid, status.st.st_gid)
    }

    static func link(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ newParent: NodeID, _ newName: UnsafePointer<CChar>
    ) {
        if id.isVirtual || newParent.isVirtual {
            request.reply(error: EACCES)
            return
        }
        view.onNode(request, newParent, for: .write, name: newName) { request, parent, directory in
            guard let node = view.tree.nodes.find(id.rawValue) else {
                request.reply(error: ESTALE)
                return
            }
            guard node.pointee.scope == parent.pointee.scope else {
                request.reply(error: EXDEV)
                return
            }
            if let refusal = view.refusal(of: id, node, for: .write) {
                request.reply(error: refusal.error)
                return
            }
            view.lastCalls.record(request.caller.pid, in: parent.pointee.scope, installs: true)
            let descriptor = view.tree.pin(node)
            let document = view.document(of: newParent, parent, named: newName)
            if let document, descriptor >= 0 {
                let result = view.audited(request, parent, .file(descriptor), to: .entry(directory, newName)) {
                    view.link(descriptor, to: document, newName, as: request.caller)
                }
                if result < 0 {
                    request.reply(failure: result)
                } else {
                    view.replyDocument(request, newName, found: (newParent, parent), cachesAttributes: false)
                }
                view.tree.unpin(id.rawValue, node)
                return
            }
            let result =
                descriptor < 0
                ? descriptor
                : view.audited(request, parent, .file(descriptor), to: .entry(directory, newName)) {
                    view.making(((newParent, parent), directory, newName, request.caller), node.pointee.type) {
                        Identity.withReserve(of: request.caller) {
                            view.link(descriptor, into: directory, newName, as: request.caller)
                        }
                    }
                }
            if result < 0 {
                request.reply(failure: result)
            } else {
                // The kernel applies these attributes to an inode that it knows, even if they were
                // invalidated meanwhile (fs/fuse/dir.c, create_new_entry).
                view.replyEntry(request, newName, in: directory, found: (newParent, parent), cachesAttributes: false)
            }
            view.tree.unpin(id.rawValue, node)
        }
    }

    /// Linux restricts links to other users' files (fs.protected_hardlinks).
    private func link(_ descriptor: Int32, into directory: Int32, _ name: UnsafePointer<CChar>, as caller: Caller) -> Int32 {
        if isOwner(caller, of: descriptor) { return clinux_link_descriptor(descriptor, directory, name) }
        let rights = { self.rights(of: caller, over: descriptor) }
        let result = Identity.asWriter(caller, has: rights) { clinux_link_descriptor(descriptor, directory, name) }
        // EACCES is of the directory, which the kernel in front has checked.
        return result == -EACCES
            ? Identity.asOwner(caller, has: rights) { clinux_link_descriptor(descriptor, directory, name) } : result
    }

    /// READLINK: replies with a symbolic link's text unchanged.
    ///
    /// The caller's kernel resolves it in the caller's namespace.
    static func readlink(_ view: ViewFS, _ request: consuming Request, _ id: NodeID) {
        view.onNode(request, id, for: .read) { request, _, descriptor in
            let buffer = request.worker.pointee.buffer.assumingMemoryBound(to: CChar.self)
            let count = clinux_readlink_descriptor(descriptor, buffer, Worker.bufferSize - 1)
            if count < 0 {
                request.reply(failure: count)
            } else {
                buffer[min(count, Worker.bufferSize - 1)] = 0
                request.reply(link: buffer)
            }
        }
    }
}

/// The kind of file that mknod(2) makes, for people.
private func kind(of mode: mode_t) -> String {
    switch mode & S_IFMT {
    case S_IFIFO: "a FIFO"
    case S_IFSOCK: "a socket"
    case S_IFBLK, S_IFCHR: "a device"
    default: "a file"
    }
}

/// RENAME_NOREPLACE of <linux/fs.h>.
private let renameNoReplace: UInt32 = 1 << 0
/// RENAME_EXCHANGE of <linux/fs.h>.
private let renameExchange: UInt32 = 1 << 1
