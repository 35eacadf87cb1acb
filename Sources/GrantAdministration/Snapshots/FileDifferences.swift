import Glibc
import GrantStore
import GrantSystem

/// Compares files with their copies, and notes which names were one file.
final class FileDifferences {
    private let stamps: [[UInt8]: FileStamp]
    /// Maps names that were one file to their present files, and vice versa.
    private var nowOfBefore: [FileKey: FileKey] = [:]
    private var beforeOfNow: [FileKey: FileKey] = [:]
    /// For files with several names: one that needs no change, by the copy.
    private(set) var kept: [FileKey: TreeComparison.Kept] = [:]
    private var buffers = ([UInt8](repeating: 0, count: 1 << 17), [UInt8](repeating: 0, count: 1 << 17))

    init(_ stamps: [[UInt8]: FileStamp]) { self.stamps = stamps }

    /// Returns the differences of a file from its copy, at `name` in both directories. Unreadable
    /// parts of it are `.unread`.
    func find(
        _ then: FileStatus, _ now: FileStatus, _ before: Int32, _ directory: Int32, _ name: [UInt8], _ place: [UInt8]
    ) -> Set<TreeChange.Aspect> {
        let type = now.st.st_mode & S_IFMT
        guard then.st.st_mode & S_IFMT == type else { return [.type] }
        let stamp = stamps[place]
        var aspects: Set<TreeChange.Aspect> = []
        if type != S_IFDIR, linksDiffer(then, now) { aspects.insert(.links) }
        if let stamp, stamp.isCertainlyEqual(FileStamp(now)) {
            if aspects.isEmpty { keep(then, now, place) }
            return aspects
        }
        // If the user may not set owners, the copy has another owner. The record has the real one.
        if type != S_IFLNK, (stamp?.mode ?? then.st.st_mode) & 0o7777 != now.st.st_mode & 0o7777 { aspects.insert(.mode) }
        if (stamp?.uid ?? then.st.st_uid) != now.st.st_uid || (stamp?.gid ?? then.st.st_gid) != now.st.st_gid { aspects.insert(.owner) }
        do throws(Errno) {
            switch type {
            case S_IFREG: if try contentsDiffer(then, now, before, directory, name) { aspects.insert(.contents) }
            case S_IFLNK:
                let one = try FileDescriptor.openAt(before, name, OpenFlags.path | O_NOFOLLOW)
                let other = try FileDescriptor.openAt(directory, name, OpenFlags.path | O_NOFOLLOW)
                if try one.linkText() != other.linkText() { aspects.insert(.target) }
            case S_IFBLK, S_IFCHR: if then.st.st_rdev != now.st.st_rdev { aspects.insert(.type) }
            default: break
            }
            if try attributesDiffer(before, directory, name) { aspects.insert(.attributes) }
        } catch {
            aspects.insert(.unread)
        }
        // A directory's times change with every name in it.
        if type != S_IFDIR, then.st.st_mtim.tv_sec != now.st.st_mtim.tv_sec || then.st.st_mtim.tv_nsec != now.st.st_mtim.tv_nsec {
            aspects.insert(.time)
        }
        if aspects.isEmpty, type != S_IFDIR { keep(then, now, place) }
        return aspects
    }

    private func keep(_ then: FileStatus, _ now: FileStatus, _ place: [UInt8]) {
        guard then.st.st_nlink > 1, kept[FileKey(then)] == nil else { return }
        kept[FileKey(then)] = TreeComparison.Kept(path: place, key: FileKey(now))
    }

    /// Whether names that were one file are several now, or vice versa.
    private func linksDiffer(_ then: FileStatus, _ now: FileStatus) -> Bool {
        let (was, key) = (FileKey(then), FileKey(now))
        var differ = false
        if then.st.st_nlink > 1 {
            if let first = nowOfBefore[was] { differ = first != key } else { nowOfBefore[was] = key }
        }
        if now.st.st_nlink > 1 {
            if let first = beforeOfNow[key] { differ = differ || first != was } else { beforeOfNow[key] = was }
        }
        return differ
    }

    private func attributesDiffer(_ before: Int32, _ directory: Int32, _ name: [UInt8]) throws(Errno) -> Bool {
        let one = try FileAttributes.extended(of: try FileDescriptor.openAt(before, name, OpenFlags.path | O_NOFOLLOW))
        let other = try FileAttributes.extended(of: try FileDescriptor.openAt(directory, name, OpenFlags.path | O_NOFOLLOW))
        // A copy need not have attributes of the system and its labels.
        let text = { (list: [FileAttributes.Extended]) in
            Dictionary(list.filter { FileAttributes.isOwn($0.name) }.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        }
        return text(one) != text(other)
    }

    private func contentsDiffer(
        _ then: FileStatus, _ now: FileStatus, _ before: Int32, _ directory: Int32, _ name: [UInt8]
    ) throws(Errno) -> Bool {
        if then.st.st_size != now.st.st_size { return true }
        if then.st.st_size == 0 { return false }
        let one = try FileDescriptor.openBeneath(before, name, O_RDONLY | O_NOFOLLOW)
        let other: FileDescriptor
        do throws(Errno) {
            // It may be a FIFO or a device by now, which must not be opened.
            let path = try FileDescriptor.openBeneath(directory, name, OpenFlags.path | O_NOFOLLOW)
            guard FileKey(try path.status()) == FileKey(now) else { return true }
            other = try path.reopened(O_RDONLY | O_NONBLOCK)
        } catch {
            // It cannot be compared, so it is listed.
            if error == Errno(EACCES) { return true }
            throw error
        }
        let size = Int64(truncatingIfNeeded: now.st.st_size)
        var place: Int64 = 0
        while true {
            // A hole of both need not be read: a sparse file may seem to have millions of times what it has.
            let data = (try one.data(from: place, size: size), try other.data(from: place, size: size))
            place = min(data.0?.lowerBound ?? size, data.1?.lowerBound ?? size)
            if place >= size { return false }
            let start = off_t(truncatingIfNeeded: place)
            guard lseek(one.number, start, SEEK_SET) == start, lseek(other.number, start, SEEK_SET) == start else { throw Errno(EIO) }
            let (first, second) = (try fill(&buffers.0, from: one), try fill(&buffers.1, from: other))
            if first != second || buffers.0[..<first] != buffers.1[..<second] { return true }
            if first == 0 { return false }
            place += Int64(first)
        }
    }

    private func fill(_ buffer: inout [UInt8], from file: borrowing FileDescriptor) throws(Errno) -> Int {
        var filled = 0
        while filled < buffer.count {
            let count = buffer.withUnsafeMutableBytes { read(file.number, $0.baseAddress! + filled, $0.count - filled) }
            if count < 0, errno == EINTR { continue }
            if count < 0 { throw Errno(errno) }
            if count == 0 { break }
            filled += count
        }
        return filled
    }
}
