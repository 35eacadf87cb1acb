import Glibc
import GrantModel
import GrantSystem

/// The files by which grantfs is told what to grant, show and start: profiles of sandboxes, declared grants, policies, units and
/// completions. A program that can write there decides what later programs see, so no grant gives write access to them.
public enum ObeyedFiles {
    /// Throws `.invalidDirectory` if a grant of `path` (canonical) with this access would let
    /// programs change such files.
    ///
    /// - Parameter named: more files that this process obeys, named on its command line.
    public static func check(_ path: [UInt8], access: Access, named: [[UInt8]] = []) throws(GrantError) {
        guard access == .readWrite else { return }
        let table = try LoopCheck.currentTable()
        let place = Place(path, in: table)
        for obeyed in named + places() {
            // The location of the file, and of the name that leads there, because a link can be
            // replaced.
            let paths = [CanonicalPath.resolveWhatExists(obeyed), (try? CanonicalPath.resolveAbove(obeyed)) ?? obeyed]
            guard let found = paths.map({ Place($0, in: table) }).first(where: { place.meets($0) }) else { continue }
            let (shown, file) = (String(decoding: path, as: UTF8.self), String(decoding: obeyed, as: UTF8.self))
            throw GrantError(
                .invalidDirectory, "“\(shown)” cannot be granted for writing",
                cause: "it \(place.holds(found) ? "holds" : "lies in") \(file), which grantfs obeys: "
                    + "a program that writes there decides what later programs may see",
                advice: "grant it read-only\(place.holds(found) ? ", or directories inside it" : "")")
        }
    }

    /// Absolute paths, missing ones included: a program could create them.
    private static func places() -> [[UInt8]] {
        let homes = [value("HOME"), homeOfUser()].compactMap { $0 }
        let configurations = unique([value("XDG_CONFIG_HOME")] + homes.map { join($0, ".config") })
        let data = unique([value("XDG_DATA_HOME")] + homes.map { join($0, ".local/share") })
        var found: [[UInt8]] = []
        for directory in configurations {
            found += withLinks(join(directory, "grantfs")) + [join(directory, "systemd/user")]
            found += [join(directory, "fish/completions/grantfs.fish")].filter(exists)
        }
        for directory in data {
            found += [join(directory, "systemd/user")]
            found += [join(directory, "bash-completion/completions/grantfs")].filter(exists)
        }
        // Other users cannot write there anyway.
        guard geteuid() == 0 else { return found }
        found += withLinks(Array("/etc/grantfs".utf8)) + [Array("/etc/systemd/system".utf8)]
        if let prefix = Installation.prefix { found.append(join(prefix, "share/grantfs")) }
        return found
    }

    /// Returns the directory, and the files in it and in its directories, because each may be a
    /// link to a file elsewhere.
    private static func withLinks(_ directory: [UInt8]) -> [[UInt8]] {
        var found = [directory]
        for name in (try? DirectoryNames.of(directory)) ?? [] {
            let entry = CanonicalPath.join(directory, name)
            found.append(entry)
            for inner in (try? DirectoryNames.of(entry)) ?? [] { found.append(CanonicalPath.join(entry, inner)) }
        }
        return found
    }

    /// An absolute path from the environment.
    private static func value(_ name: String) -> [UInt8]? {
        guard let value = getenv(name), value[0] == CChar(UInt8(ascii: "/")) else { return nil }
        return CanonicalPath.bytes(of: value)
    }

    /// The home that the user database names. A service may have another in its environment.
    private static func homeOfUser() -> [UInt8]? {
        guard let entry = getpwuid(geteuid()), let home = entry.pointee.pw_dir, home[0] == CChar(UInt8(ascii: "/")) else { return nil }
        return CanonicalPath.bytes(of: home)
    }

    private static func unique(_ paths: [[UInt8]?]) -> [[UInt8]] {
        var seen: Set<[UInt8]> = []
        return paths.compactMap { $0 }.filter { seen.insert($0).inserted }
    }

    private static func join(_ directory: [UInt8], _ names: String) -> [UInt8] { CanonicalPath.join(directory, Array(names.utf8)) }

    private static func exists(_ path: [UInt8]) -> Bool {
        var status = stat()
        return withCString(path) { lstat($0, &status) } == 0
    }
}
