import Glibc
import GrantAdministration
import GrantSystem

/// The parts of the system that a sandbox shows read-only.
struct SystemFiles: Sendable {
    let isRoot: Bool
    let hasNetwork: Bool

    /// Arguments for bwrap, and the descriptors that they refer to.
    struct Found: Sendable {
        fileprivate(set) var words: [[UInt8]] = []
        /// Open files, which the caller closes. The first has the requested number.
        fileprivate(set) var files: [Int32] = []
    }

    /// Collects the files. For root, small files of /etc are copied, because binding each would take most of the time to make a
    /// sandbox.
    func find(firstDescriptor: Int32) -> Found {
        var words = Words()
        words.add("--ro-bind", "/usr", "/usr")
        for directory in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] { addAsItIs(directory, to: &words) }
        guard isRoot else {
            words.add("--ro-bind", "/etc", "/etc", "--ro-bind-try", "/opt", "/opt")
            return Found(words: words.list)
        }
        // Even without capabilities, root owns files that only their owner may read: keys, passwords.
        var files = PublicFiles(firstDescriptor: firstDescriptor)
        for directory in ["/etc", "/usr/local/etc"] where kind(of: Array(directory.utf8)) == S_IFDIR {
            words.add("--tmpfs", directory)
            files.add(below: Array(directory.utf8), to: &words)
            words.add("--remount-ro", directory)
        }
        return Found(words: words.list, files: files.descriptors)
    }

    /// Adds the target of /etc/resolv.conf, if that is in the host's /run.
    func addResolver(to words: inout Words) {
        guard hasNetwork, let resolved = realpath("/etc/resolv.conf", nil) else { return }
        defer { free(resolved) }
        let path = String(cString: resolved)
        if path.hasPrefix("/run/") { words.add("--ro-bind-try", path, path) }
    }

    /// Adds a link as a link, and a directory read-only.
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
