import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

extension ViewFS {
    /// LSEEK with SEEK_DATA or SEEK_HOLE. The kernel handles the other values itself.
    static func lseek(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ offset: off_t, _ whence: Int32, _ info: OpenFileInfo) {
        view.onFile(request, info.fh, id, for: .read) { request, file in
            if view.policy.writeBack, !view.flushDirtyPages(NodeID(file.pointee.node)) {
                request.reply(error: EAGAIN)
                return
            }
            let result = clinux_lseek(file.pointee.descriptor, Int64(truncatingIfNeeded: offset), whence)
            if result < 0 { request.reply(failure: result) } else { request.reply(offset: result) }
        }
    }

    /// Makes the kernel write back its dirty pages of a file, and waits for that.
    ///
    /// Two requests need it under write-back. The kernel asks for holes without writing back first
    /// (fs/fuse/file.c, fuse_lseek), and dirty pages would be holes of the backing file. Dirty
    /// pages could also not be written any more once the file has become immutable
    /// (fs/fuse/ioctl.c, fuse_fileattr_set).
    ///
    /// A thread of its own invalidates the data. This worker waits for it inside its scope, where a
    /// revoker finds it. Each such wait needs another worker for the writes, so their number is
    /// limited. Returns false without an effect if there are too many.
    func flushDirtyPages(_ id: NodeID) -> Bool {
        // Closing writes back. So does unmapping, and a mapping keeps its file open.
        guard let node = tree.nodes.find(id.rawValue), mayBeDirty(node) else { return true }
        guard let notifier = session?.notifier else { return true }
        defer { seekers.wrappingSubtract(1, ordering: .relaxed) }
        guard seekers.wrappingAdd(1, ordering: .relaxed).oldValue < Self.workerLimit / 4 else { return false }
        let done = Semaphore()
        _ = BackgroundTask {
            _ = notifier.invalidateData(id)
            done.post()
        }
        done.wait()
        return true
    }
}
