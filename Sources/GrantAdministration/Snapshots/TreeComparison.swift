import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A change of one name.
public struct TreeChange: Sendable {
    public enum Kind: String, Sendable {
        case added, removed, changed
    }

    /// A property of a file that differs.
    public enum Aspect: String, Sendable, CaseIterable {
        case type, contents, target, mode, owner, attributes, links, time
    }

    /// The index of the directory.
    public let directory: Int
    /// The path of that directory.
    public let root: [UInt8]
    /// The path below it; empty for the directory itself.
    public let path: [UInt8]
    public let kind: Kind
    public let aspects: Set<Aspect>
    public let isDirectory: Bool
    /// The status before; nil if it did not exist. It is the copy's where the copy has it.
    let before: FileStatus?
    let now: FileStamp?
    let nowStatus: FileStatus?

    /// The absolute path.
    public var place: [UInt8] { path.isEmpty ? root : CanonicalPath.join(root, path) }
    public var modeBefore: UInt32? { before.map { $0.st.st_mode } }
    public var modeNow: UInt32? { nowStatus.map { $0.st.st_mode } }
    public var sizeBefore: Int64? { before.map { Int64($0.st.st_size) } }
    public var sizeNow: Int64? { nowStatus.map { Int64($0.st.st_size) } }
}

/// Compares the copy of a tree with its present state, with descriptors, following no link. Mounts inside are not entered.
final class TreeComparison {
    /// The prefix of temporary files of an undo, which are ignored. No program knows it before it has ended, so none can hide a file by
    /// it.
    private let staging: [UInt8]
    private let known: RunRecord.Directory
    private let stamps: [[UInt8]: FileStamp]
    private var changes: [TreeChange] = []
    /// Maps names that were one file by what they are now, and vice versa.
    private var nowOfBefore: [FileKey: FileKey] = [:]
    private var beforeOfNow: [FileKey: FileKey] = [:]
    /// For files with several names: one that needs no change, by the copy.
    private(set) var kept: [FileKey: [UInt8]] = [:]
    private var relativePath: [UInt8] = []
    private var mount: UInt64 = 0
    private var buffers = ([UInt8](repeating: 0, count: 1 << 17), [UInt8](repeating: 0, count: 1 << 17))

    init(_ known: RunRecord.Directory, stamps: [[UInt8]: FileStamp], staging: [UInt8]) {
        (self.known, self.stamps, self.staging) = (known, stamps, staging)
    }

    /// Returns the differences sorted by path; a directory comes before its contents.
    func compare(_ before: borrowing FileDescriptor, _ now: borrowing FileDescriptor) throws(GrantError) -> [TreeChange] {
        do throws(Errno) {
            let (was, status) = (try before.status(), try now.status())
            mount = status.mount_id
            relativePath = []
            let aspects = try differences(was, status, before.number, now.number, [0x2E], [])
            if !aspects.isEmpty { add([], .changed, aspects, was, status) }
            try compareEntries(before, now, [])
            return changes
        } catch {
            let place = String(decoding: relativePath.isEmpty ? known.path : CanonicalPath.join(known.path, relativePath), as: UTF8.self)
            throw GrantError(Snapshot.code(error), "“\(place)” cannot be compared", cause: error.description)
        }
    }

    private func add(_ path: [UInt8], _ kind: TreeChange.Kind, _ aspects: Set<TreeChange.Aspect>, _ was: FileStatus?, _ now: FileStatus?) {
        let mode = (now ?? was).map { $0.st.st_mode & S_IFMT }
        changes.append(
            TreeChange(
                directory: known.number, root: known.path, path: path, kind: kind, aspects: aspects, isDirectory: mode == S_IFDIR,
                before: was, now: now.map { FileStamp($0) }, nowStatus: now))
    }

    private func compareEntries(_ before: borrowing FileDescriptor, _ now: borrowing FileDescriptor, _ path: [UInt8]) throws(Errno) {
        let (was, names) = (try self.names(before), try self.names(now))
        for name in Set(was).union(names).sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            let place = path.isEmpty ? name : path + [0x2F] + name
            relativePath = place
            let (then, status) = (try self.status(before.number, name), try self.status(now.number, name))
            // A mount, which is not part of the tree.
            if let status, status.mount_id != mount { continue }
            switch (then, status) {
            case (let then?, let status?):
                let aspects = try differences(then, status, before.number, now.number, name, place)
                if !aspects.isEmpty { add(place, .changed, aspects, then, status) }
                let (wasDirectory, isDirectory) = (TreeComparison.isDirectory(then), TreeComparison.isDirectory(status))
                if wasDirectory, isDirectory {
                    let entered = try enter(now, name)
                    try compareEntries(try enter(before, name), entered, place)
                } else if wasDirectory {
                    try addAll(in: try enter(before, name), place, .removed)
                } else if isDirectory {
                    try addAll(in: try enter(now, name), place, .added)
                }
            case (let then?, nil):
                add(place, .removed, [], then, nil)
                if TreeComparison.isDirectory(then) { try addAll(in: try enter(before, name), place, .removed) }
            case (nil, let status?):
                add(place, .added, [], nil, status)
                if TreeComparison.isDirectory(status) { try addAll(in: try enter(now, name), place, .added) }
            case (nil, nil): break
            }
        }
    }

    private func addAll(in directory: borrowing FileDescriptor, _ path: [UInt8], _ kind: TreeChange.Kind) throws(Errno) {
        for name in try names(directory).sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            let place = path + [0x2F] + name
            relativePath = place
            guard let status = try status(directory.number, name) else { continue }
            if kind == .added, status.mount_id != mount { continue }
            add(place, kind, [], kind == .removed ? status : nil, kind == .added ? status : nil)
            if TreeComparison.isDirectory(status) { try addAll(in: try enter(directory, name), place, kind) }
        }
    }

    private static func isDirectory(_ status: FileStatus) -> Bool { status.st.st_mode & S_IFMT == S_IFDIR }

    private func names(_ directory: borrowing FileDescriptor) throws(Errno) -> [[UInt8]] {
        var names: [[UInt8]] = []
        _ = try directory.forEachEntry(limit: .max) { _, _, name in names.append(Array(name)) }
        return names.filter { !$0.starts(with: staging) }
    }

    private func status(_ directory: Int32, _ name: [UInt8]) throws(Errno) -> FileStatus? {
        do throws(Errno) {
            return try DirectoryEntry.status(directory, name)
        } catch {
            if error == Errno(ENOENT) { return nil }
            throw error
        }
    }

    private func enter(_ directory: borrowing FileDescriptor, _ name: [UInt8]) throws(Errno) -> FileDescriptor {
        try FileDescriptor.openBeneath(directory.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
    }

    private func differences(
        _ then: FileStatus, _ now: FileStatus, _ before: Int32, _ directory: Int32, _ name: [UInt8], _ place: [UInt8]
    ) throws(Errno) -> Set<TreeChange.Aspect> {
        let type = now.st.st_mode & S_IFMT
        guard then.st.st_mode & S_IFMT == type else { return [.type] }
        let stamp = stamps[place]
        var aspects: Set<TreeChange.Aspect> = []
        if type != S_IFDIR, linksDiffer(then, now, place) { aspects.insert(.links) }
        if let stamp, stamp.isCertainlyEqual(FileStamp(now)) {
            if aspects.isEmpty, then.st.st_nlink > 1 { kept[FileKey(then)] = kept[FileKey(then)] ?? place }
            return aspects
        }
        // If the user may not set owners, the copy has another owner; the record has the real one.
        if type != S_IFLNK, (stamp?.mode ?? then.st.st_mode) & 0o7777 != now.st.st_mode & 0o7777 { aspects.insert(.mode) }
        if (stamp?.uid ?? then.st.st_uid) != now.st.st_uid || (stamp?.gid ?? then.st.st_gid) != now.st.st_gid { aspects.insert(.owner) }
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
        // A directory's times change with every name in it.
        if type != S_IFDIR, then.st.st_mtim.tv_sec != now.st.st_mtim.tv_sec || then.st.st_mtim.tv_nsec != now.st.st_mtim.tv_nsec {
            aspects.insert(.time)
        }
        if aspects.isEmpty, type != S_IFDIR, then.st.st_nlink > 1 { kept[FileKey(then)] = kept[FileKey(then)] ?? place }
        return aspects
    }

    /// Whether names that were one file are several now, or vice versa.
    private func linksDiffer(_ then: FileStatus, _ now: FileStatus, _ place: [UInt8]) -> Bool {
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
        let isKept = { (name: String) in name.hasPrefix("user.") || name.hasPrefix("system.posix_acl_") }
        let text = { (list: [FileAttributes.Extended]) in
            Dictionary(list.filter { isKept($0.name) }.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
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
            other = try FileDescriptor.openBeneath(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        } catch {
            // It cannot be compared, so it is listed.
            if error == Errno(EACCES) { return true }
            throw error
        }
        while true {
            let (first, second) = (try fill(&buffers.0, from: one), try fill(&buffers.1, from: other))
            if first != second || buffers.0[..<first] != buffers.1[..<second] { return true }
            if first == 0 { return false }
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
