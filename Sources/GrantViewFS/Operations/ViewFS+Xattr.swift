import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Extended attributes. Names in `security.` and `trusted.` are neither shown nor set, because the
// daemon would set them with rights that its callers lack.
extension ViewFS {
    static func getxattr(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ name: UnsafePointer<CChar>, _ size: Int) {
        if id.isVirtual {
            request.reply(error: ENODATA)
            return
        }
        if view.kernelOpens, size == 0, strcmp(name, capabilityName) == 0 { return probeWritable(view, request, id) }
        view.onNode(request, id, for: .read) { request, node, descriptor in
            if view.names.showsDocuments, strcmp(name, hostPathName) == 0 {
                return replyHostPath(request, of: node, descriptor, asked: size)
            }
            if isReserved(name) {
                if size == 0, view.mustAskToWrite(node), strcmp(name, capabilityName) == 0 {
                    request.reply(xattrSize: 1)
                } else {
                    request.reply(error: ENODATA)
                }
                return
            }
            let buffer = request.worker.pointee.buffer
            let isMappedACL = view.unmapped != nil && strncmp(name, "system.posix_acl_", 17) == 0
            var result = clinux_getxattr_descriptor(
                descriptor, name, size == 0 && !isMappedACL ? nil : buffer, isMappedACL ? Worker.bufferSize : min(size, Worker.bufferSize))
            if isMappedACL, result > 0 { result = withoutUnmapped(buffer, result) }
            if isMappedACL, size != 0, result > size { result = -Int(ERANGE) }
            replyXattr(request, result, buffer, asked: size)
        }
    }

    /// Replies with the file's path on the host, as an attribute of the document portal.
    ///
    /// Programs show this path to people. Applications may read it too, as `GetHostPaths` gives it
    /// to them for their documents. A file that a program makes beside a document has no such path,
    /// because it lies in a private workplace.
    private static func replyHostPath(
        _ request: consuming Request, of node: NodePointer, _ descriptor: Int32, asked size: Int
    ) {
        let buffer = request.worker.pointee.buffer
        var status = FileStatus()
        let isShown = node.pointee.withOwner { scope in scope.document.map { $0.key == node.pointee.key } ?? true }
        guard isShown, clinux_statx(descriptor, nil, &status) == 0, status.st.st_nlink > 0 else {
            request.reply(error: ENODATA)
            return
        }
        let count = clinux_descriptor_path(descriptor, buffer.assumingMemoryBound(to: CChar.self), Int(PATH_MAX))
        replyXattr(request, count > 0 && size != 0 && count > size ? -Int(ERANGE) : count, buffer, asked: size)
    }

    static func listxattr(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ size: Int) {
        if id.isVirtual {
            if size == 0 { request.reply(xattrSize: 0) } else { request.reply(bytes: request.worker.pointee.buffer, count: 0) }
            return
        }
        view.onNode(request, id, for: .read) { request, _, descriptor in
            // Read whole even if only the size is requested, because hidden names do not count.
            let buffer = request.worker.pointee.buffer
            let result = clinux_listxattr_descriptor(descriptor, buffer.assumingMemoryBound(to: CChar.self), 65_536)
            let shown = result < 0 ? result : removeReserved(buffer, result)
            replyXattr(request, size != 0 && shown > size ? -Int(ERANGE) : shown, buffer, asked: size)
        }
    }

    static func setxattr(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ name: UnsafePointer<CChar>, _ value: UnsafeRawPointer?, _ size: Int,
        _ flags: Int32
    ) {
        if id.isVirtual {
            request.reply(error: EACCES)
            return
        }
        view.onNode(request, id, for: .write) { request, node, descriptor in
            if strcmp(name, "system.posix_acl_access") == 0 { view.settleSetID(of: descriptor, for: request.caller, byACL: true) }
            let result = view.audited(request, node, .file(descriptor), detail: String(cString: name)) {
                isReserved(name) || view.document(of: id, node) != nil
                    ? -EPERM
                    : Identity.withReserve(of: request.caller) {
                        view.changing(name, of: descriptor, as: request.caller) {
                            clinux_setxattr_descriptor(descriptor, name, value, size, flags)
                        }
                    }
            }
            reply(request, result)
        }
    }

    static func removexattr(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ name: UnsafePointer<CChar>) {
        if id.isVirtual {
            request.reply(error: EACCES)
            return
        }
        view.onNode(request, id, for: .write) { request, node, descriptor in
            let result = view.audited(request, node, .file(descriptor), detail: String(cString: name)) {
                if view.kernelOpens, strcmp(name, capabilityName) == 0 { return view.writeRefusal(request.caller, id, node) }
                if isReserved(name) || view.document(of: id, node) != nil { return -EPERM }
                return view.changing(name, of: descriptor, as: request.caller) { clinux_removexattr_descriptor(descriptor, name) }
            }
            reply(request, result)
        }
    }

    /// Changes an attribute by `change`: an ACL as its owner, others with write permission.
    private func changing(_ name: UnsafePointer<CChar>, of descriptor: Int32, as caller: Caller, _ change: () -> Int32) -> Int32 {
        let rights = { self.rights(of: caller, over: descriptor) }
        return strncmp(name, "user.", 5) != 0 || isOwner(caller, of: descriptor)
            ? Identity.asOwner(caller, has: rights, change) : Identity.asWriter(caller, has: rights, change)
    }
}

private let capabilityName = "security.capability"
private let hostPathName = "user.document-portal.host-path"

private func replyXattr(_ request: consuming Request, _ result: Int, _ buffer: UnsafeMutableRawPointer, asked size: Int) {
    if result < 0 {
        request.reply(failure: result)
    } else if size == 0 {
        request.reply(xattrSize: result)
    } else {
        request.reply(bytes: buffer, count: result)
    }
}

/// Takes the entries of users and groups without a number out of an ACL, which the kernel would refuse as a whole. No process is one of
/// them. Returns the new length.
private func withoutUnmapped(_ acl: UnsafeMutableRawPointer, _ count: Int) -> Int {
    // struct posix_acl_xattr_entry: tag, permissions, number.
    let (header, entry) = (4, 8)
    var kept = header
    for place in stride(from: header, through: count - entry, by: entry) {
        let tag = UInt16(littleEndian: acl.loadUnaligned(fromByteOffset: place, as: UInt16.self))
        let isNamed = tag == 0x02 || tag == 0x08
        if isNamed, acl.loadUnaligned(fromByteOffset: place + 4, as: UInt32.self) == .max { continue }
        if kept != place { memmove(acl + kept, acl + place, entry) }
        kept += entry
    }
    return count < header ? count : kept
}

private func isReserved(_ name: UnsafePointer<CChar>) -> Bool {
    strncmp(name, "security.", 9) == 0 || strncmp(name, "trusted.", 8) == 0
}

/// Removes the reserved names from a list of NUL-terminated names. Returns the new length.
private func removeReserved(_ list: UnsafeMutableRawPointer, _ length: Int) -> Int {
    var (from, to) = (0, 0)
    while from < length {
        let name = (list + from).assumingMemoryBound(to: CChar.self)
        // Also if the last name ends without a NUL.
        let size = min(strnlen(name, length - from) + 1, length - from)
        if !isReserved(name) {
            memmove(list + to, list + from, size)
            to += size
        }
        from += size
    }
    return to
}
