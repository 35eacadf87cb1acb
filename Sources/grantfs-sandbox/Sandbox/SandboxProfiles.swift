import Glibc
import GrantAdministration
import GrantCommandLine
import GrantFiles
import GrantModel
import GrantSystem

/// The profiles for `grantfs run --tool`: the user's own first, then the administrator's, then the installed ones.
enum SandboxProfiles {
    /// The maximum size of a profile.
    private static let largest = 1 << 20

    /// Finds and reads a profile. Throws `.notFound`, with the available ones, or `.permission` if
    /// others could have written it.
    static func profile(named word: [UInt8]) throws(GrantError) -> SandboxProfile {
        let name = try ParsedArguments.text(word, "the value of --tool")
        let isPlain = !name.isEmpty && name.first != "." && !name.utf8.contains(UInt8(ascii: "/")) && !name.utf8.contains(0)
        guard isPlain else {
            throw GrantError(.usage, "invalid profile name “\(Terminal.visible(name))”", advice: "--tool cargo")
        }
        for directory in directories {
            let path = directory + "/" + name
            let file: FileDescriptor
            do throws(Errno) {
                file = try FileDescriptor.open(Array(path.utf8), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
            } catch {
                if error == Errno(ENOENT) || error == Errno(ENOTDIR) { continue }
                throw GrantError(.system, "\(path) cannot be read", cause: error.description)
            }
            return try SandboxProfile(try contents(of: file, path), file: path, home: home)
        }
        let names = Set(directories.flatMap { files(in: $0) }).sorted()
        let near = Suggestion.nearest(to: name, among: names)
        throw GrantError(
            .notFound, "there is no profile “\(name)”",
            cause: names.isEmpty ? "there is none at all" : "there are " + names.joined(separator: ", "),
            advice: near.map { "did you mean “\($0)”?" } ?? "\(directories[0])/\(name) would be one")
    }

    /// The expansion of `~`. Nothing is found there if there is no home, or if it is the whole machine.
    static var home: [UInt8] {
        let home = SandboxEnvironment.value(of: "HOME") ?? []
        let isOwn = home.first == UInt8(ascii: "/") && CanonicalPath.plain(home) != [UInt8(ascii: "/")]
        return isOwn ? home : Array("/nonexistent".utf8)
    }

    private static var directories: [String] {
        let own = getenv("XDG_CONFIG_HOME").map { String(cString: $0) }.flatMap { $0.hasPrefix("/") ? $0 : nil }
        let first = (own ?? String(decoding: home, as: UTF8.self) + "/.config") + "/grantfs/profiles"
        let installed = Installation.prefix.map {
            String(decoding: CanonicalPath.join($0, Array("share/grantfs/profiles".utf8)), as: UTF8.self)
        }
        return [first, "/etc/grantfs/profiles"] + [installed].compactMap { $0 }
    }

    private static func files(in directory: String) -> [String] {
        ((try? DirectoryNames.of(directory.utf8)) ?? []).map { String(decoding: $0, as: UTF8.self) }.filter { $0.first != "." }
    }

    /// A profile widens what a program may see, so only the user and root may be able to write it.
    static func contents(of file: borrowing FileDescriptor, _ path: String) throws(GrantError) -> [UInt8] {
        var status = stat()
        guard fstat(file.number, &status) == 0 else { throw GrantError(.system, "\(path) cannot be read", cause: Errno(errno).description) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw GrantError(.invalidFile, "\(path) is not a profile", cause: "it is not a regular file")
        }
        guard status.st_uid == 0 || status.st_uid == geteuid(), status.st_mode & 0o022 == 0 else {
            throw GrantError(
                .permission, "\(path) is not read", cause: "others may write to it, or it belongs to another user",
                advice: "chmod go-w \(path)")
        }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = read(file.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw GrantError(.system, "\(path) cannot be read", cause: Errno(errno).description) }
            if count == 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > largest {
                throw GrantError(.invalidFile, "\(path) is not a profile", cause: "it is larger than 1 MiB")
            }
        }
    }
}
