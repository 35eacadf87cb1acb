import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

extension ViewFS {
    /// LSEEK with SEEK_DATA or SEEK_HOLE; the kernel does the others by itself.
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

    /// Makes the kernel write back its dirty pages of a file, and waits for that. Under write-back they would be holes of the
    /// backing file: the kernel asks for holes without writing back first (fs/fuse/file.c, fuse_lseek); and they could not be
    /// written any more to a file that has become immutable (fs/fuse/ioctl.c, fuse_fileattr_set).
    ///
    /// An invalidation does it, on a thread of its own, for which this worker waits inside its scope, where a revoker finds it.
    /// Each such wait needs another worker for the writes, so their number is limited: false, and nothing done, when there are too
    /// many.
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
