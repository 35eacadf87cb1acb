import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// Conversions between URLs and the kernel's paths.
enum FilePath {
    /// Returns the absolute path. `.`, `..` and links are kept. Throws `.usage` if it is not a file
    /// URL. (Foundation's URLs are text: they cannot hold a name that is not UTF-8.)
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

    /// Calls realpath(3): resolves links, and everything has to exist. `.notFound`, `.permission`, `.system`.
    static func canonical(_ url: URL) throws(GrantError) -> [UInt8] {
        let path = try bytes(url)
        do throws(Errno) {
            return try CanonicalPath.resolve(path)
        } catch {
            throw failure(error, path)
        }
    }

    /// Normalises the path by its text alone, without a trailing `/`: the result does not depend on the disk.
    static func words(_ url: URL) throws(GrantError) -> [UInt8] { CanonicalPath.plain(try bytes(url)) }

    /// Returns the results of `words` and `canonical`.
    static func wordsAndCanonical(_ url: URL) throws(GrantError) -> (words: [UInt8], canonical: [UInt8]) {
        let path = try bytes(url)
        do throws(Errno) {
            return (CanonicalPath.plain(path), try CanonicalPath.resolve(path))
        } catch {
            throw failure(error, path)
        }
    }

    static func url(_ path: [UInt8], isDirectory: Bool) -> URL {
        withCString(path) { URL(fileURLWithFileSystemRepresentation: $0, isDirectory: isDirectory, relativeTo: nil) }
    }

    /// Returns the names of `path` below `directory`, joined by `/`. The result is empty for the
    /// directory itself, and nil if `path` is elsewhere. Both are absolute and canonical.
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
