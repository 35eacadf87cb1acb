import Glibc
import LinuxFS

/// What of the system a sandbox shows, read-only.
struct SystemFiles {
    let isRoot: Bool
    let hasNetwork: Bool

    func add(to words: inout Words) {
        words.add("--ro-bind", "/usr", "/usr")
        for directory in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] { addAsItIs(directory, to: &words) }
        if isRoot {
            // Without capabilities, root is still the owner of what only its owner may read: keys, passwords.
            for directory in ["/etc", "/usr/local/etc"] where kind(of: Array(directory.utf8)) == S_IFDIR {
                words.add("--tmpfs", directory)
                words.add(contents: SystemFiles.publicWords(below: Array(directory.utf8)).words)
                words.add("--remount-ro", directory)
            }
        } else {
            words.add("--ro-bind", "/etc", "/etc", "--ro-bind-try", "/opt", "/opt")
        }
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
            guard let target = SystemFiles.target(of: bytes) else { return }
            words.add("--symlink")
            words.add(target, bytes)
        case S_IFDIR: words.add("--ro-bind", path, path)
        default: break
        }
    }

    /// What every user may read below the directory. A directory in which that is everything is bound as one; `isWhole` says so.
    static func publicWords(below directory: [UInt8]) -> (isWhole: Bool, words: [[UInt8]]) {
        guard let names = try? DirectoryNames.of(directory) else { return (false, []) }
        var isWhole = true
        var words = Words()
        for name in names.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            let path = directory + [UInt8(ascii: "/")] + name
            var status = stat()
            guard withCString(path, { lstat($0, &status) }) == 0 else { continue }
            switch status.st_mode & S_IFMT {
            case S_IFLNK:
                guard let target = target(of: path) else { continue }
                words.add("--symlink")
                words.add(target, path)
            case S_IFDIR where status.st_mode & 0o5 == 0o5:
                let below = publicWords(below: path)
                isWhole = isWhole && below.isWhole
                words.add(below.isWhole ? "--ro-bind" : "--dir")
                words.add(path)
                if below.isWhole { words.add(path) } else { words.add(contents: below.words) }
            case S_IFREG where status.st_mode & 0o4 != 0:
                words.add("--ro-bind")
                words.add(path, path)
            default: isWhole = false
            }
        }
        return (isWhole, words.list)
    }

    private func kind(of path: [UInt8]) -> mode_t {
        var status = stat()
        return withCString(path, { lstat($0, &status) }) == 0 ? status.st_mode & S_IFMT : 0
    }

    private static func target(of link: [UInt8]) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = withCString(link) { link in
            buffer.withUnsafeMutableBytes { readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
        }
        return count > 0 ? Array(buffer[..<count]) : nil
    }
}

extension Words {
    mutating func add(contents: [[UInt8]]) { for word in contents { add(word) } }
}
