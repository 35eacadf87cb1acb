import Glibc
import GrantModel
import GrantSystem

/// The subdirectories of a directory, for a person to choose from.
public struct DirectoryListing: Sendable, Equatable {
    /// Canonical.
    public let path: [UInt8]
    /// Unsorted.
    public let directories: [[UInt8]]
    /// Symbolic links. They were not resolved, so they may lead anywhere.
    public let links: [[UInt8]]

    /// Lists a directory, by any path to it. Throws `.invalidDirectory` if it cannot be read or its
    /// filesystem does not answer.
    public static func of(_ directory: [UInt8], probe: DirectoryProbe) throws(GrantError) -> DirectoryListing {
        switch probe.ask([.listing(directory: directory)])[0] {
        case .listed(let listing): return listing
        case .errno(let error): throw refusal(directory, error.description)
        default: throw refusal(directory, "its filesystem does not answer")
        }
    }

    /// Returns the links that lead to directories, or nil if the filesystem of one does not answer.
    public func linksToDirectories(probe: DirectoryProbe) -> [[UInt8]]? {
        if links.isEmpty { return [] }
        guard case .links(let names) = probe.ask([.links(directory: path, names: links)])[0] else { return nil }
        return names
    }

    init(path: [UInt8], directories: [[UInt8]], links: [[UInt8]]) {
        (self.path, self.directories, self.links) = (path, directories, links)
    }

    /// Lists a directory. `progress` is called now and then. Throws the errors of open(2) and
    /// getdents64(2).
    init(of directory: [UInt8], progress: () -> Void) throws(Errno) {
        if directory.contains(0) { throw Errno(EINVAL) }
        let descriptor = try FileDescriptor.open(directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK)
        var (directories, links, unknown) = ([[UInt8]](), [[UInt8]](), [[UInt8]]())
        var count = 0
        _ = try descriptor.forEachEntry(limit: .max) { _, type, name in
            switch Int(type) {
            case DT_DIR: directories.append(Array(name))
            case DT_LNK: links.append(Array(name))
            case DT_UNKNOWN: unknown.append(Array(name))
            default: break
            }
            count += 1
            if count % 1_000 == 0 { progress() }
        }
        for name in unknown {
            var status = stat()
            guard withCString(name, { fstatat(descriptor.number, $0, &status, AT_SYMLINK_NOFOLLOW) }) == 0 else { continue }
            if status.st_mode & S_IFMT == S_IFDIR { directories.append(name) }
            if status.st_mode & S_IFMT == S_IFLNK { links.append(name) }
            progress()
        }
        self.init(path: try descriptor.path(), directories: directories, links: links)
    }

    static func leadsToDirectory(_ name: [UInt8], in directory: [UInt8]) -> Bool {
        var status = stat()
        let path = CanonicalPath.join(directory, name)
        return withCString(path) { stat($0, &status) } == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    private static func refusal(_ directory: [UInt8], _ cause: String) -> GrantError {
        GrantError(.invalidDirectory, "“\(String(decoding: directory, as: UTF8.self))” cannot be read", cause: cause)
    }
}
