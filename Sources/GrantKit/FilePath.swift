import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// The paths of URLs, as the kernel takes them.
enum FilePath {
    /// Absolute; `.`, `..` and links as they are in the URL. `.usage` when the URL is no file's. (Foundation's URLs are text: a name that is not UTF-8 cannot be
    /// in one.)
    static func bytes(_ url: URL) throws(GrantError) -> [UInt8] {
        guard url.isFileURL else {
            throw GrantError(.usage, "“\(url.absoluteString)” cannot be used", cause: "it is not the URL of a file")
        }
        let bytes = url.withUnsafeFileSystemRepresentation { text in
            text.map { UnsafeBufferPointer(start: $0, count: strlen($0)).map { UInt8(bitPattern: $0) } }
        }
        guard let bytes, !bytes.isEmpty else {
            throw GrantError(.usage, "“\(url.absoluteString)” cannot be used", cause: "it has no path")
        }
        return CanonicalPath.absolute(bytes)
    }

    /// realpath(3): links followed, everything there. `.notFound`, `.permission`, `.system`.
    static func canonical(_ url: URL) throws(GrantError) -> [UInt8] {
        let path = try bytes(url)
        do throws(Errno) {
            return try CanonicalPath.resolve(path)
        } catch {
            throw failure(error, path)
        }
    }

    /// What the path is by its words alone, without a `/` at the end: the same before and after whatever happens on the disk.
    static func words(_ url: URL) throws(GrantError) -> [UInt8] { CanonicalPath.plain(try bytes(url)) }

    static func url(_ path: [UInt8], isDirectory: Bool) -> URL {
        withCString(path) { URL(fileURLWithFileSystemRepresentation: $0, isDirectory: isDirectory, relativeTo: nil) }
    }

    /// The names of `path` below `directory`, joined by `/`; empty for the directory itself, nil when it lies elsewhere. Both absolute and canonical.
    static func below(_ directory: [UInt8], _ path: [UInt8]) -> [UInt8]? {
        guard MountTable.path(path, isAtOrBelow: directory) else { return nil }
        return Array(path.dropFirst(directory.count).drop { $0 == UInt8(ascii: "/") })
    }

    static func join(_ directory: [UInt8], _ below: [UInt8]) -> [UInt8] {
        below.isEmpty ? directory : CanonicalPath.join(directory, below)
    }

    /// Whether `path` is `inView` in some mount of the view.
    static func path(_ path: [UInt8], endsWith inView: [UInt8]) -> Bool { path.suffix(inView.count).elementsEqual(inView) }

    static func shown(_ path: [UInt8]) -> String { String(decoding: path, as: UTF8.self) }

    static func failure(_ error: Errno, _ path: [UInt8]) -> GrantError {
        let code: GrantError.Code =
            switch error.rawValue {
            case ENOENT, ENOTDIR: .notFound
            case EACCES, EPERM: .permission
            default: .system
            }
        return GrantError(code, "“\(shown(path))” cannot be used", cause: error.description)
    }
}
