import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// Reads a document's file as a whole, and replaces it atomically.
enum DocumentFile {
    private static let portion = 1 << 20

    /// Reads the file. `progress` counts bytes. Cancelling it stops the read. Throws a
    /// `CocoaError`, with the errno as `underlying`.
    static func read(_ url: URL, _ progress: Progress) throws -> Data {
        do {
            let file = try FileDescriptor.open(try FilePath.words(url), O_RDONLY)
            let status = try file.status()
            guard status.st.st_mode & S_IFMT != S_IFDIR else { throw Errno(EISDIR) }
            let size = Int(clamping: status.st.st_size)
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
            throw CocoaError(error, url: url, isWriting: false)
        }
    }

    /// Writes a file and flushes it to disk. It is made if there is none. `isPrivate`: for this user alone, and there must be none. A link
    /// is not followed.
    static func fill(_ url: URL, _ data: Data, isPrivate: Bool, _ progress: Progress) throws {
        progress.totalUnitCount = Int64(max(data.count, 1))
        do {
            let path = try FilePath.words(url)
            let flags = O_WRONLY | O_CREAT | O_NOFOLLOW | (isPrivate ? O_EXCL : 0)
            let file = try FileDescriptor.open(path, flags, mode: isPrivate ? 0o600 : 0o666)
            try fill(file, data, progress)
            if ftruncate(file.number, off_t(data.count)) != 0 { throw Errno(errno) }
            if fsync(file.number) != 0 { throw Errno(errno) }
        } catch let error as Errno {
            throw CocoaError(error, url: url, isWriting: true)
        }
    }

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
        progress.completedUnitCount = progress.totalUnitCount
    }

    /// Puts what `write` makes in the place of the file or directory at `url`, atomically. The new one keeps the owner, the mode, the ACL
    /// and the extended attributes of the old one, where permitted.
    ///
    /// If nothing can be made beside it, as at the root of a view, `write` writes in place.
    ///
    /// - Parameters:
    ///   - isNew: nothing may exist at `url`.
    ///   - write: gets where to write, and whether that is for this user alone until it has the old one's attributes.
    static func replace(_ url: URL, isNew: Bool, _ write: (_ place: URL, _ isPrivate: Bool) throws -> Void) throws {
        do {
            let path = try FilePath.words(url)
            let directory = try FileDescriptor.open(CanonicalPath.parent(of: path), OpenFlags.path | O_DIRECTORY)
            let name = CanonicalPath.lastName(of: path)
            let old = try old(name, in: directory)
            if isNew, old != nil { throw Errno(EEXIST) }
            if old != nil, try !mayCreate(in: directory) { return try write(url, false) }
            // Another user could exchange the new file before it gets the old one's owner and mode.
            let staging =
                try old != nil && hasOtherWriters(directory)
                ? OwnStaging(in: directory, prefix: Array(".saving-".utf8), digits: 16) : OwnStaging?.none
            defer { staging?.remove() }
            let temporary = Array(".\(GrantID.random().description.prefix(16)).saving".utf8)
            let beside = try staging.map { try $0.directory.path() } ?? CanonicalPath.parent(of: path)
            let place = FilePath.url(CanonicalPath.join(beside, temporary), isDirectory: url.hasDirectoryPath)
            let made = (directory: staging?.directory.number ?? directory.number, name: temporary)
            do {
                try write(place, old != nil)
                try finish(made, like: old)
                try exchange(made, name, in: directory, old, isNew: isNew)
                if old?.isDirectory == true {
                    if let staging { try? removeTree(temporary, in: staging) } else { try FileManager.default.removeItem(at: place) }
                }
            } catch {
                try? FileManager.default.removeItem(at: place)
                throw error
            }
        } catch let error as Errno {
            throw CocoaError(error, url: url, isWriting: true)
        }
    }

    private struct Old {
        let status: FileStatus
        let attributes: [FileAttributes.Extended]
        var isDirectory: Bool { status.st.st_mode & S_IFMT == S_IFDIR }
    }

    /// Returns the present file, or nil if there is none. A link is an error: the caller has
    /// resolved those that it follows.
    private static func old(_ name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) -> Old? {
        let file: FileDescriptor
        do throws(Errno) {
            file = try FileDescriptor.openAt(directory.number, name, OpenFlags.path | O_NOFOLLOW)
        } catch {
            if error == Errno(ENOENT) { return nil }
            throw error
        }
        let status = try file.status()
        if status.st.st_mode & S_IFMT == S_IFLNK { throw Errno(ELOOP) }
        do throws(Errno) {
            return Old(status: status, attributes: try FileAttributes.extended(of: file))
        } catch {
            if error != Errno(EOPNOTSUPP) { throw error }
            return Old(status: status, attributes: [])
        }
    }

    /// Whether a file can be made in the directory. Its name is used for nothing else, because others may have seen it.
    private static func mayCreate(in directory: borrowing FileDescriptor) throws(Errno) -> Bool {
        let name = Array(".\(GrantID.random().description.prefix(16)).saving".utf8)
        do throws(Errno) {
            _ = try FileDescriptor.openAt(directory.number, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        } catch {
            if error == Errno(EACCES) || error == Errno(EPERM) { return false }
            throw error
        }
        if withCString(name, { unlinkat(directory.number, $0, 0) }) != 0 { throw Errno(errno) }
        return true
    }

    /// Whether this process is root's and users may change names in the directory.
    private static func hasOtherWriters(_ directory: borrowing FileDescriptor) throws(Errno) -> Bool {
        if geteuid() != 0 { return false }
        let status = try directory.status().st
        return status.st_uid != 0 || status.st_mode & 0o022 != 0
    }

    /// Removes the old directory, which its owner may change meanwhile.
    private static func removeTree(_ name: [UInt8], in staging: OwnStaging) throws(Errno) {
        let old = try FileDescriptor.openBeneath(staging.directory.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        try TreeRemoval.remove(old, named: name, in: staging.directory, asOwner: true)
    }

    /// Gives the new file the old one's attributes.
    private static func finish(_ made: (directory: Int32, name: [UInt8]), like old: Old?) throws(Errno) {
        let written = try FileDescriptor.openAt(made.directory, made.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        let kind = try written.status().st.st_mode & S_IFMT
        guard kind == S_IFREG || kind == S_IFDIR else { throw Errno(EINVAL) }
        if let old {
            guard old.status.st.st_mode & S_IFMT == kind else { throw Errno(kind == S_IFDIR ? ENOTDIR : EISDIR) }
            try FileAttributes.carry(old.status, old.attributes, over: written)
        }
        if fsync(written.number) != 0, errno != EINVAL { throw Errno(errno) }
    }

    /// Gives the new file its name. A directory changes places with the old one.
    private static func exchange(
        _ made: (directory: Int32, name: [UInt8]), _ name: [UInt8], in directory: borrowing FileDescriptor, _ old: Old?, isNew: Bool
    ) throws(Errno) {
        let number = directory.number
        if isNew {
            try DirectoryEntry.move(made.directory, made.name, to: number, name)
        } else if old?.isDirectory == true {
            try DirectoryEntry.exchange(made.directory, made.name, with: number, name)
        } else {
            let result = withCString(made.name) { from in withCString(name) { renameat(made.directory, from, number, $0) } }
            if result != 0 { throw Errno(errno) }
        }
    }
}

extension CocoaError {
    /// The error for a failed system call on a file.
    init(_ error: Errno, url: URL, isWriting: Bool) {
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
        self.init(code, userInfo: CocoaErrorText(error, url: url, isWriting: isWriting).userInfo(underlying: error))
    }
}
