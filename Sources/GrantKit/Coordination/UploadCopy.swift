import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// The snapshot for an upload, in a directory that only this user may enter.
struct UploadCopy: Sendable {
    let url: URL
    private let directory: [UInt8]
    private let key: FileKey

    /// Copies a file or tree, under its own name, into the directory for temporary files. `check`
    /// may throw to stop, and then nothing is left.
    init(of item: URL, check: @escaping () throws(GrantError) -> Void) throws(GrantError) {
        let temporary = try FilePath.canonical(FileManager.default.temporaryDirectory)
        directory = CanonicalPath.join(temporary, Array("grantkit-\(UUID().uuidString)".utf8))
        let words = try FilePath.words(item)
        // Links in the parent path are followed, the item itself is not.
        let above = CanonicalPath.resolveWhatExists(CanonicalPath.parent(of: words))
        let made = try Snapshot.make(of: [CanonicalPath.join(above, CanonicalPath.lastName(of: words))], in: directory, check: check)
        key = made.key
        url = FilePath.url(made.paths[0], isDirectory: item.hasDirectoryPath)
    }

    /// Removes the snapshot. A snapshot that was moved elsewhere stays, and so does an object in
    /// its place.
    func remove() { try? Snapshot.remove(directory, key) }

    /// The same without blocking one of Swift's threads. A cancelled task gets no copy.
    static func make(of item: URL) async throws(GrantError) -> UploadCopy {
        let isCancelled = Lock(false)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Result<UploadCopy, GrantError>, Never>) in
                let work: @Sendable () -> Void = {
                    do throws(GrantError) {
                        let copy = try UploadCopy(of: item) { () throws(GrantError) in
                            if isCancelled.withLock({ $0 }) { throw CoordinationError.cancelled.grantError }
                        }
                        continuation.resume(returning: .success(copy))
                    } catch {
                        continuation.resume(returning: .failure(error))
                    }
                }
                do throws(Errno) {
                    try WorkerThread.start("upload", work).detach()
                } catch {
                    continuation.resume(
                        returning: .failure(GrantError(.system, "the item cannot be copied", cause: error.description)))
                }
            }
        } onCancel: {
            isCancelled.withLock { $0 = true }
        }
        return try result.get()
    }
}
