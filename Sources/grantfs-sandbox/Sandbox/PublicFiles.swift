import Glibc
import GrantAdministration
import GrantSystem

/// The world-readable files below a system directory, as arguments for bwrap.
struct PublicFiles {
    /// Open files, in the order of their numbers.
    private(set) var descriptors: [Int32] = []
    private let firstDescriptor: Int32

    /// Larger files are bound instead of copied, and so are all after this number.
    private static let (largest, most): (off_t, Int) = (1 << 20, 256)
    /// The seconds in which a file may change again, and the size and number of copies up to which it is copied then. In a new container
    /// every file has changed, and each copy takes two descriptors for a moment.
    private static let (settling, largestChanging, mostChanging): (time_t, off_t, Int) = (60, 64 << 20, 384)
    /// Programs replace files of the system at any time, and leave others only for a moment, such as /etc/group+.
    private static let bind = "--ro-bind-try"
    /// A bind takes as long as this many copies.
    private static let small = 16

    init(firstDescriptor: Int32) { self.firstDescriptor = firstDescriptor }

    /// Binds large directories whose contents are all public as one. In others it recreates links, and copies files from descriptors.
    mutating func add(below directory: [UInt8], to words: inout Words) { add(PublicFiles.entries(of: directory), to: &words) }

    private mutating func add(_ entries: [Entry], to words: inout Words) {
        for entry in entries {
            switch entry.kind {
            case S_IFLNK:
                guard let target = try? CanonicalPath.target(of: entry.path) else { continue }
                words.add("--symlink")
                words.add(target, entry.path)
            case S_IFDIR where entry.isPublic:
                if let size = PublicFiles.size(ofWhole: entry.below), size > PublicFiles.small {
                    bind(entry.path, in: &words)
                } else {
                    words.add("--perms", "0755", "--dir")
                    words.add(entry.path)
                    add(entry.below, to: &words)
                }
            case S_IFREG where entry.isPublic: addFile(entry.path, to: &words)
            default: continue
            }
        }
    }

    private mutating func addFile(_ path: [UInt8], to words: inout Words) {
        let file: FileDescriptor
        do throws(Errno) {
            file = try FileDescriptor.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        } catch {
            if error != Errno(ENOENT) { bind(path, in: &words) }
            return
        }
        // Another file may have the name by now.
        guard let status = try? file.status().st, status.st_mode & S_IFMT == S_IFREG, status.st_mode & 0o4 != 0 else { return }
        guard copies(status) else { return bind(path, in: &words) }
        let mode = String(status.st_mode & 0o755, radix: 8)
        words.add("--perms", "0" + mode, "--file", String(firstDescriptor + Int32(clamping: descriptors.count)))
        words.add(path)
        descriptors.append(file.release())
    }

    /// bwrap ends with an error if a file is removed while it is being bound, so files that are changing are copied.
    private func copies(_ status: stat) -> Bool {
        if time(nil) - status.st_ctim.tv_sec < PublicFiles.settling {
            return status.st_size <= PublicFiles.largestChanging && descriptors.count < PublicFiles.mostChanging
        }
        return status.st_size <= PublicFiles.largest && descriptors.count < PublicFiles.most
    }

    private func bind(_ path: [UInt8], in words: inout Words) {
        words.add(PublicFiles.bind)
        words.add(path, path)
    }

    /// A directory entry, as it was at one look.
    private struct Entry {
        let path: [UInt8]
        let kind: mode_t
        let isPublic: Bool
        /// The contents of a public directory.
        let below: [Entry]
    }

    /// Returns the number of entries if all are world-readable, otherwise nil.
    private static func size(ofWhole entries: [Entry]) -> Int? {
        var size = entries.count
        for entry in entries {
            switch entry.kind {
            case S_IFLNK: continue
            case S_IFDIR where entry.isPublic:
                guard let below = self.size(ofWhole: entry.below) else { return nil }
                size += below
            case S_IFREG where entry.isPublic: continue
            default: return nil
            }
        }
        return size
    }

    private static func entries(of path: [UInt8]) -> [Entry] {
        // Names are looked up in their directory alone: a full path would be walked from the root each time.
        guard let directory = try? FileDescriptor.open(path, O_RDONLY | O_DIRECTORY) else { return [] }
        return entries(of: path, directory)
    }

    private static func entries(of path: [UInt8], _ directory: borrowing FileDescriptor) -> [Entry] {
        var names: [[UInt8]] = []
        _ = try? directory.forEachEntry(limit: .max) { _, _, name in names.append(Array(name)) }
        return names.sorted { $0.lexicographicallyPrecedes($1) }.compactMap { name in
            var status = stat()
            guard withCString(name, { fstatat(directory.number, $0, &status, AT_SYMLINK_NOFOLLOW) }) == 0 else { return nil }
            let kind = status.st_mode & S_IFMT
            let needed: mode_t = kind == S_IFDIR ? 0o5 : 0o4
            let isPublic = status.st_mode & needed == needed
            let place = CanonicalPath.join(path, name)
            var below: [Entry] = []
            if kind == S_IFDIR, isPublic,
                let inner = try? FileDescriptor.openAt(directory.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            {
                below = entries(of: place, inner)
            }
            return Entry(path: place, kind: kind, isPublic: isPublic, below: below)
        }
    }
}
