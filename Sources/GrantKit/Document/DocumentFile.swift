import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// Reads a document's file as a whole, and replaces it atomically.
enum DocumentFile {
    private static let portion = 1 << 20

    /// Reads the file. `progress` counts bytes; cancelling the task stops it. A `CocoaError`, with the errno as `underlying`.
    static func read(_ url: URL, _ progress: Progress) throws -> Data {
        do {
            let file = try FileDescriptor.open(try FilePath.words(url), O_RDONLY)
            let size = Int(clamping: try file.status().st.st_size)
            progress.totalUnitCount = Int64(max(size, 1))
            var data = Data()
            data.reserveCapacity(size)
            var buffer = [UInt8](repeating: 0, count: portion)
            while true {
                if progress.isCancelled { throw CocoaError(.userCancelled) }
                let count = Glibc.read(file.number, &buffer, buffer.count)
                if count < 0, errno == EINTR { continue }
                if count < 0 { throw Errno(errno) }
                if count == 0 { break }
                data.append(contentsOf: buffer[..<count])
                progress.completedUnitCount = min(Int64(data.count), progress.totalUnitCount)
            }
            progress.completedUnitCount = progress.totalUnitCount
            return data
        } catch let error as Errno {
            throw DocumentFile.error(error, url, isWriting: false)
        }
    }

    /// Replaces the file atomically. The new file keeps the old one's permissions. `isNew`: no file may exist.
    ///
    /// If no file can be made beside it, as at the root of a view, it is overwritten in place.
    static func write(_ data: Data, to url: URL, isNew: Bool, _ progress: Progress) throws {
        progress.totalUnitCount = Int64(max(data.count, 1))
        let path = try FilePath.words(url)
        do throws(Errno) {
            let directory = try FileDescriptor.open(CanonicalPath.parent(of: path), OpenFlags.path | O_DIRECTORY)
            let name = CanonicalPath.lastName(of: path)
            var old = stat()
            let isThere = withCString(name) { fstatat(directory.number, $0, &old, AT_SYMLINK_NOFOLLOW) } == 0
            if isNew { return try make(name, in: directory, data, progress) }
            let temporary = Array(".\(GrantID.random().description.prefix(16)).saving".utf8)
            let file: FileDescriptor
            do throws(Errno) {
                file = try FileDescriptor.openAt(
                    directory.number, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: isThere ? old.st_mode & 0o777 : 0o666)
            } catch {
                guard isThere, error == Errno(EACCES) || error == Errno(EPERM) else { throw error }
                return try overwrite(name, in: directory, data, progress)
            }
            do throws(Errno) {
                // The umask may have removed these.
                if isThere, fchmod(file.number, old.st_mode & 0o777) != 0 { throw Errno(errno) }
                try fill(file, data, progress)
                let result = withCString(temporary) { from in withCString(name) { renameat(directory.number, from, directory.number, $0) } }
                if result != 0 { throw Errno(errno) }
            } catch {
                _ = withCString(temporary) { unlinkat(directory.number, $0, 0) }
                throw error
            }
        } catch {
            throw DocumentFile.error(error, url, isWriting: true)
        }
    }

    /// Creates the file, which must not exist. Coordinated readers see it complete.
    private static func make(
        _ name: [UInt8], in directory: borrowing FileDescriptor, _ data: Data, _ progress: Progress
    ) throws(Errno) {
        let file = try FileDescriptor.openAt(directory.number, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o666)
        do throws(Errno) {
            try fill(file, data, progress)
        } catch {
            _ = withCString(name) { unlinkat(directory.number, $0, 0) }
            throw error
        }
    }

    private static func overwrite(
        _ name: [UInt8], in directory: borrowing FileDescriptor, _ data: Data, _ progress: Progress
    ) throws(Errno) {
        let file = try FileDescriptor.openAt(directory.number, name, O_WRONLY | O_NOFOLLOW)
        try fill(file, data, progress)
        if ftruncate(file.number, off_t(data.count)) != 0 { throw Errno(errno) }
    }

    /// Writes everything and flushes it to disk.
    private static func fill(_ file: borrowing FileDescriptor, _ data: Data, _ progress: Progress) throws(Errno) {
        var done = 0
        while done < data.count {
            if progress.isCancelled { throw Errno(ECANCELED) }
            let end = min(done + portion, data.count)
            let count = data[data.startIndex + done..<data.startIndex + end].withUnsafeBytes {
                Glibc.write(file.number, $0.baseAddress, $0.count)
            }
            if count < 0, errno == EINTR { continue }
            if count < 0 { throw Errno(errno) }
            done += count
            progress.completedUnitCount = min(Int64(done), progress.totalUnitCount)
        }
        if fsync(file.number) != 0 { throw Errno(errno) }
        progress.completedUnitCount = progress.totalUnitCount
    }

    private static func error(_ error: Errno, _ url: URL, isWriting: Bool) -> CocoaError {
        let code: CocoaError.Code =
            switch error.rawValue {
            case EACCES, EPERM: isWriting ? .fileWriteNoPermission : .fileReadNoPermission
            case ENOENT, ENOTDIR: isWriting ? .fileNoSuchFile : .fileReadNoSuchFile
            case EEXIST: .fileWriteFileExists
            case EROFS: .fileWriteVolumeReadOnly
            case ENOSPC, EDQUOT: .fileWriteOutOfSpace
            case ECANCELED: .userCancelled
            default: isWriting ? .fileWriteUnknown : .fileReadUnknown
            }
        return CocoaError(code, userInfo: [NSURLErrorKey: url, NSUnderlyingErrorKey: error])
    }
}
