import Glibc
import GrantModel
import GrantSystem

/// The directories in a directory, for whoever chooses one.
public struct DirectoryListing: Sendable, Equatable {
    /// Canonical.
    public let path: [UInt8]
    /// In no order.
    public let directories: [[UInt8]]
    /// Symbolic links. They were not followed, so they may lead anywhere.
    public let links: [[UInt8]]

    /// Lists what `directory`, a path by which it can be reached, holds. `.invalidDirectory` when it cannot be read or does not answer.
    public static func of(_ directory: [UInt8], lookout: Lookout) throws(GrantError) -> DirectoryListing {
        switch lookout.ask([.listing(directory: directory)])[0] {
        case .listed(let listing): return listing
        case .errno(let error): throw refusal(directory, error.description)
        default: throw refusal(directory, "its filesystem does not answer")
        }
    }

    /// The links that lead to directories; nil when one of them leads to where nobody answers.
    public func linksToDirectories(lookout: Lookout) -> [[UInt8]]? {
        if links.isEmpty { return [] }
        guard case .links(let names) = lookout.ask([.links(directory: path, names: links)])[0] else { return nil }
        return names
    }

    init(path: [UInt8], directories: [[UInt8]], links: [[UInt8]]) {
        (self.path, self.directories, self.links) = (path, directories, links)
    }

    /// `progress` is called now and then. Throws what open(2) and getdents64(2) give.
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
