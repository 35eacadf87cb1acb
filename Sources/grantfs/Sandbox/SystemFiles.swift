import Glibc
import GrantAdministration
import GrantSystem

/// What of the system a sandbox shows, read-only.
struct SystemFiles: Sendable {
    let isRoot: Bool
    let hasNetwork: Bool

    /// Words for bwrap, and the descriptors that they speak of.
    struct Found: Sendable {
        fileprivate(set) var words: [[UInt8]] = []
        /// Open files; the first has the number that was asked for. Whoever has this closes them.
        fileprivate(set) var files: [Int32] = []
    }

    /// What there is now; of root's /etc copies of small files, since a bind of each would take most of the time that a sandbox takes to be made.
    func find(firstDescriptor: Int32) -> Found {
        var words = Words()
        words.add("--ro-bind", "/usr", "/usr")
        for directory in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] { addAsItIs(directory, to: &words) }
        guard isRoot else {
            words.add("--ro-bind", "/etc", "/etc", "--ro-bind-try", "/opt", "/opt")
            return Found(words: words.list)
        }
        // Without capabilities, root is still the owner of what only its owner may read: keys, passwords.
        var files = PublicFiles(firstDescriptor: firstDescriptor)
        for directory in ["/etc", "/usr/local/etc"] where kind(of: Array(directory.utf8)) == S_IFDIR {
            words.add("--tmpfs", directory)
            files.add(below: Array(directory.utf8), to: &words)
            words.add("--remount-ro", directory)
        }
        return Found(words: words.list, files: files.descriptors)
    }

    /// The file that /etc/resolv.conf leads to, where that is in the /run of the host.
    func addResolver(to words: inout Words) {
        guard hasNetwork, let resolved = realpath("/etc/resolv.conf", nil) else { return }
        defer { free(resolved) }
        let path = String(cString: resolved)
        if path.hasPrefix("/run/") { words.add("--ro-bind", path, path) }
    }

    /// A link as a link, a directory read-only.
    private func addAsItIs(_ path: String, to words: inout Words) {
        let bytes = Array(path.utf8)
        switch kind(of: bytes) {
        case S_IFLNK:
            guard let target = try? CanonicalPath.target(of: bytes) else { return }
            words.add("--symlink")
            words.add(target, bytes)
        case S_IFDIR: words.add("--ro-bind", path, path)
        default: break
        }
    }

    private func kind(of path: [UInt8]) -> mode_t {
        var status = stat()
        return withCString(path, { lstat($0, &status) }) == 0 ? status.st_mode & S_IFMT : 0
    }
}
