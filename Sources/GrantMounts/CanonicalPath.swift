import Glibc
import GrantSystem

/// Paths as bytes.
public enum CanonicalPath {
    /// Makes a path absolute. `.`, `..` and doubled slashes are kept.
    public static func absolute(_ path: [UInt8]) -> [UInt8] {
        if path.first == UInt8(ascii: "/") { return path }
        guard let current = getcwd(nil, 0) else { return path }
        defer { free(current) }
        return bytes(of: current) + [UInt8(ascii: "/")] + path
    }

    /// Calls realpath(3). Throws ENOENT, ENOTDIR, EACCES, ELOOP.
    public static func resolve(_ path: [UInt8]) throws(Errno) -> [UInt8] {
        var error: Int32 = 0
        let result: [UInt8]? = withCString(path) { path in
            guard let resolved = realpath(path, nil) else {
                error = errno
                return nil
            }
            defer { free(resolved) }
            return bytes(of: resolved)
        }
        guard let result else { throw Errno(error) }
        return result
    }

    /// Resolves the parent directory and keeps the last name: for a mountpoint whose filesystem may hang.
    public static func resolveAbove(_ path: [UInt8]) throws(Errno) -> [UInt8] {
        var names = absolute(path).split(separator: UInt8(ascii: "/"))
        guard let last = names.popLast() else { return [UInt8(ascii: "/")] }
        if last == [UInt8(ascii: ".")] || Array(last) == Array("..".utf8) { return try resolve(path) }
        let parent = try resolve([UInt8(ascii: "/")] + names.joined(separator: [UInt8(ascii: "/")]))
        return join(parent, Array(last))
    }

    /// Returns the absolute path without `.`, `..` and doubled slashes. It works on the text alone: nothing is looked up, links are not
    /// followed.
    public static func plain(_ path: [UInt8]) -> [UInt8] {
        var names: [ArraySlice<UInt8>] = []
        for name in absolute(path).split(separator: UInt8(ascii: "/")) where name != [UInt8(ascii: ".")] {
            if name.elementsEqual("..".utf8) { _ = names.popLast() } else { names.append(name) }
        }
        return [UInt8(ascii: "/")] + names.joined(separator: [UInt8(ascii: "/")])
    }

    /// Resolves as much of the path as exists and appends the rest.
    public static func resolveWhatExists(_ path: [UInt8]) -> [UInt8] {
        var names = absolute(path).split(separator: UInt8(ascii: "/")).filter { $0 != [UInt8(ascii: ".")] }
        var missing: [[UInt8]] = []
        while true {
            if let found = try? resolve([UInt8(ascii: "/")] + names.joined(separator: [UInt8(ascii: "/")])) {
                return missing.reversed().reduce(found) { join($0, $1) }
            }
            guard let last = names.popLast() else { return absolute(path) }
            missing.append(Array(last))
        }
    }

    /// Whether each name of a path is in the listing of its directory, and so is no other spelling that its filesystem finds as well.
    ///
    /// A directory that may not be listed counts as if it had the name.
    package static func isListed(_ path: [UInt8]) -> Bool {
        var above: [UInt8] = [UInt8(ascii: "/")]
        for name in path.split(separator: UInt8(ascii: "/")).map(Array.init) {
            if let names = try? DirectoryNames.of(above), !names.contains(name) { return false }
            above = join(above, name)
        }
        return true
    }

    /// Calls readlink(2). Throws EINVAL if it is not a link.
    public static func target(of link: [UInt8]) throws(Errno) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 4 * Int(PATH_MAX))
        let count = withCString(link) { link in
            buffer.withUnsafeMutableBytes { readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
        }
        if count < 0 { throw Errno(errno) }
        return Array(buffer[..<count])
    }

    /// Returns everything before the last name of an absolute path, or `/` for a path of one name,
    /// and for the root.
    public static func parent(of path: [UInt8]) -> [UInt8] {
        let names = path.split(separator: UInt8(ascii: "/"))
        return [UInt8(ascii: "/")] + names.dropLast().joined(separator: [UInt8(ascii: "/")])
    }

    /// Returns the last name, or empty for the root.
    public static func lastName(of path: [UInt8]) -> [UInt8] { path.split(separator: UInt8(ascii: "/")).last.map { Array($0) } ?? [] }

    public static func join(_ directory: [UInt8], _ name: [UInt8]) -> [UInt8] {
        directory.last == UInt8(ascii: "/") ? directory + name : directory + [UInt8(ascii: "/")] + name
    }

    package static func bytes(of text: UnsafePointer<CChar>) -> [UInt8] {
        UnsafeBufferPointer(start: text, count: strlen(text)).map { UInt8(bitPattern: $0) }
    }
}
