import Glibc
import LinuxFS

/// Removes what nobody else uses, by descriptors: no link is followed, nothing that is mounted is entered.
enum TreeRemoval {
    /// Removes `name` in `directory`, with all that lies below.
    static func remove(_ name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) {
        var current = try FileDescriptor.openAt(directory.number, ".".utf8, OpenFlags.path | O_DIRECTORY)
        var above: [(name: [UInt8], names: [(name: [UInt8], isDirectory: Bool)])] = []
        var names = [(name: name, isDirectory: try DirectoryEntry.status(current.number, name).st.st_mode & S_IFMT == S_IFDIR)]
        while true {
            if let (name, isDirectory) = names.popLast() {
                if !isDirectory {
                    try DirectoryEntry.remove(current.number, name, isDirectory: false)
                    continue
                }
                above.append((name, names))
                names = try enter(name, &current)
                continue
            }
            guard let (name, rest) = above.popLast() else { return }
            current = try FileDescriptor.openAt(current.number, "..".utf8, OpenFlags.path | O_DIRECTORY)
            try DirectoryEntry.remove(current.number, name, isDirectory: true)
            names = rest
        }
    }

    /// A directory as it was copied may be closed to its owner.
    private static func enter(
        _ name: [UInt8], _ current: inout FileDescriptor
    ) throws(Errno) -> [(name: [UInt8], isDirectory: Bool)] {
        let path = try FileDescriptor.openBeneath(current.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
        try? path.setMode(0o700)
        let directory = try path.reopened(O_RDONLY | O_DIRECTORY)
        var names: [(name: [UInt8], isDirectory: Bool)] = []
        _ = try directory.forEachEntry(limit: .max) { _, type, name in names.append((Array(name), type == UInt8(DT_DIR))) }
        current = directory
        return names
    }
}
