import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// An ioctl(2) as FUSE_IOCTL delivers it.
struct FlagsCall {
    let command: UInt32
    /// The caller's argument pointer. It is nil for the kernel's own call.
    let address: UnsafeMutableRawPointer?
    /// FUSE_IOCTL_DIR
    let isDirectory: Bool
    /// The library's buffer, valid for the call.
    let input: UnsafeRawPointer?
    let inputSize: Int
    let outputSize: Int
}

// File flags of chattr(1), lsattr(1) and xfs_io(8). No other ioctl(2) is passed on: it would run
// with the daemon's rights, and many commands do not check the file's owner.
extension ViewFS {
    static func flags(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ call: FlagsCall, _ info: OpenFileInfo) {
        var changes = false
        let size = clinux_flags_size(call.command, &changes)
        // The kernel's own calls are checked first (fs/fuse/ioctl.c, fuse_fileattr_set) and carry
        // no address. Before Linux 5.13 programs' calls came unchecked, with an address.
        guard size > 0, call.address == nil, (changes ? call.inputSize : call.outputSize) == size, !id.isVirtual else {
            request.reply(error: ENOTTY)
            return
        }
        if call.isDirectory {
            view.onDirectory(request, info.fh, id, for: changes ? .write : .read) { request, directory in
                view.flags(request, id, directory.pointee.descriptor, call, size, changes: changes)
            }
        } else {
            view.onFile(request, info.fh, id, for: changes ? .write : .read) { request, file in
                if changes, view.policy.writeBack, !view.flushDirtyPages(id) {
                    request.reply(error: EAGAIN)
                    return
                }
                view.flags(request, id, file.pointee.descriptor, call, size, changes: changes)
            }
        }
    }

    private func flags(_ request: consuming Request, _ id: NodeID, _ descriptor: Int32, _ call: FlagsCall, _ size: Int, changes: Bool) {
        let buffer = request.worker.pointee.buffer
        if !changes {
            let result = clinux_flags(descriptor, call.command, buffer)
            if result < 0 { request.reply(failure: result) } else { request.reply(control: buffer, count: size) }
            return
        }
        guard let input = call.input else {
            request.reply(error: EINVAL)
            return
        }
        buffer.copyMemory(from: input, byteCount: size)
        // Some flags need a capability that the kernel in front does not check: the filesystem's
        // own, as ext4's `j`.
        guard let node = tree.nodes.find(id.rawValue) else {
            request.reply(error: ESTALE)
            return
        }
        let result = audited(request, node, .file(descriptor)) {
            Identity.asPrivileged(as: request.caller) { clinux_flags(descriptor, call.command, buffer) }
        }
        if result < 0 {
            request.reply(failure: result)
            return
        }
        // A directory may find other spellings from now on.
        node.pointee.withOwner { if $0.ruled.hasRules { $0.ruled.countRename() } }
        invalidateAttributesNow(id)
        request.reply(control: nil, count: 0)
    }

    /// Invalidates attributes, because the kernel does not expect the ctime to change.
    ///
    /// A thread of its own sends the notification. This worker waits for it inside its scope, where
    /// a revoker finds it. This notification waits for no request.
    private func invalidateAttributesNow(_ id: NodeID) {
        guard let notifier = session?.notifier else { return }
        let done = Semaphore()
        _ = BackgroundTask {
            _ = notifier.invalidateAttributes(id)
            done.post()
        }
        done.wait()
    }
}
