import Glibc
import GrantAdministration
import GrantCommandLine
import GrantFiles
import GrantModel
import GrantSystem

/// The input files of `grantfs apply`.
package enum GrantFileInput {
    /// The maximum size of a file.
    private static let maxBytes = 16 << 20

    /// Reads the declared state. Throws `.invalidFile`, or `.system` if a file cannot be read.
    package static func read(_ operands: [[UInt8]]) throws(GrantError) -> DeclaredState {
        let declared = try declared(operands)
        return DeclaredState(
            views: declared.views,
            items: declared.grants.map {
                DeclaredState.Item(
                    view: $0.view, name: $0.name, path: $0.path, access: $0.access, expires: $0.expires, coordination: $0.coordination,
                    form: $0.asDirectory ? .directory : .file, rules: $0.rules, place: $0.place)
            })
    }

    /// `isFleet`: declares grants of a fleet, which have no home directory.
    package static func declared(_ operands: [[UInt8]], isFleet: Bool = false) throws(GrantError) -> DeclaredGrants {
        let home = getenv("HOME").map { Array(String(cString: $0).utf8) }.flatMap { $0.first == UInt8(ascii: "/") ? $0 : nil }
        var declared = DeclaredGrants()
        for operand in operands {
            let found = try files(operand)
            for file in found {
                let name = file.isEmpty ? "standard input" : String(decoding: file, as: UTF8.self)
                try declared.read(
                    try contents(file, name, isNamed: found == [operand] || file.isEmpty), file: name, home: isFleet ? nil : home,
                    isFleet: isFleet)
            }
        }
        return declared
    }

    /// An empty name means standard input.
    private static func files(_ operand: [UInt8]) throws(GrantError) -> [[UInt8]] {
        if operand == [UInt8(ascii: "-")] { return [[]] }
        var status = stat()
        guard withCString(operand, { stat($0, &status) }) == 0 else {
            throw unreadable(String(decoding: operand, as: UTF8.self), errno, operand)
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return [operand] }
        try checkOwner(status, String(decoding: operand, as: UTF8.self))
        guard let stream = withCString(operand, { opendir($0) }) else { throw unreadable(String(decoding: operand, as: UTF8.self), errno) }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name.count > 7, name.suffix(7).elementsEqual(".grants".utf8), name.first != UInt8(ascii: ".") { names.append(name) }
        }
        return names.sorted { $0.lexicographicallyPrecedes($1) }.map { CanonicalPath.join(operand, $0) }
    }

    /// For root, the files in a directory grant without a check, so no other user may be able to
    /// write them. A file that was named is the caller's own choice.
    private static func checkOwner(_ status: stat, _ name: String) throws(GrantError) {
        if geteuid() != 0 { return }
        guard status.st_uid == 0, status.st_mode & 0o022 == 0 else {
            throw GrantError(
                .permission, "\(name) is not read",
                cause: status.st_uid == 0 ? "others may write to it" : "it belongs to the user with id \(status.st_uid)",
                advice: "chown it to root and chmod go-w it, or name the file itself")
        }
    }

    private static func contents(_ file: [UInt8], _ name: String, isNamed: Bool) throws(GrantError) -> [UInt8] {
        let descriptor = file.isEmpty ? STDIN_FILENO : withCString(file) { open($0, O_RDONLY | O_CLOEXEC) }
        guard descriptor >= 0 else { throw unreadable(name, errno) }
        defer { if !file.isEmpty { close(descriptor) } }
        if !isNamed {
            var status = stat()
            guard fstat(descriptor, &status) == 0 else { throw unreadable(name, errno) }
            try checkOwner(status, name)
        }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(name, errno) }
            if count == 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > maxBytes {
                throw GrantError(.invalidFile, "\(name) is not a list of grants", cause: "it is larger than 16 MiB")
            }
        }
    }

    private static func unreadable(_ name: String, _ error: Int32, _ path: [UInt8] = []) -> GrantError {
        GrantError(
            .system, "\(name) cannot be read", cause: Errno(error).description,
            advice: error == ENOENT ? UnexpandedHome.advice(for: path) : nil)
    }

    /// Whether the person at the terminal, if there is one, agrees to a change that takes something away.
    package static func isWanted(takesAway: Bool, _ arguments: ParsedArguments) -> Bool {
        guard takesAway, !arguments.has("yes"), !arguments.wantsJSON, isatty(STDIN_FILENO) == 1, isatty(Terminal.standardError) == 1,
            !Terminal.asks("apply that?")
        else { return true }
        Terminal.note("nothing was changed")
        return false
    }
}
