import Glibc
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// Checks whether one installation hides another: `make install` and a package do not detect each
/// other, and /usr/local comes first.
enum InstallationChecks {
    static func run() -> [Finding] { [programs].compactMap { $0 } + companions + units }

    /// What a shell runs as `grantfs`, by PATH.
    private static var programs: Finding? {
        let found = distinct((value("PATH") ?? "").split(separator: ":").map { "\($0)/grantfs" }) {
            S_IFMT & $0.st_mode == S_IFREG && $0.st_mode & 0o111 != 0
        }
        guard found.count > 1 else { return nil }
        return .note(
            "program", "there are \(found.count) programs in PATH: \(found[0]) comes before \(found.dropFirst().joined(separator: ", "))",
            remedy)
    }

    /// Whether the programs that `grantfs` starts are there. Those of other packages may be missing.
    private static var companions: [Finding] {
        CompanionProgram.allCases.compactMap { program in
            let check = program == .daemon ? "daemon" : "program"
            do throws(GrantError) {
                if try program.isOfThisVersion() { return nil }
                return .problem(check, "\(program.rawValue) is of another version than grantfs, or cannot run", remedy)
            } catch {
                if error.code == .notFound, program.package != CompanionProgram.daemon.package { return nil }
                return .problem(check, error.message + (error.cause.map { ": " + $0 } ?? ""), error.advice ?? remedy)
            }
        }
    }

    private static let remedy = "make uninstall, in the source that one of them is from, or apt remove grantfs"

    // MARK: units

    private static let unit = "grantfs@.service"

    /// The directories of the caller's service manager for units, by precedence, see systemd.unit(5).
    private static var directories: [String] {
        let kind = geteuid() == 0 ? "system" : "user"
        let shared = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"].map { "\($0)/systemd/\(kind)" }
        if geteuid() == 0 { return shared }
        let own = [value("XDG_CONFIG_HOME") ?? value("HOME").map { $0 + "/.config" }, value("XDG_RUNTIME_DIR")]
        return own.compactMap { $0 }.map { $0 + "/systemd/user" } + shared
    }

    private static func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

    private static var units: [Finding] {
        let found = distinct(directories.map { "\($0)/\(unit)" }) { S_IFMT & $0.st_mode == S_IFREG }
        guard let first = found.first else { return [] }
        let program = program(of: first)
        if let program, access(program, X_OK) != 0 {
            return [
                .problem("unit", "\(first) starts \(program), which is not there", "install grantfs again, or take that file away")
            ]
        }
        let shadowed = found.dropFirst().filter { Self.program(of: $0) != program }
        if shadowed.isEmpty { return [.ok("unit", "\(first) starts \(program ?? "nothing")")] }
        return [
            .problem(
                "unit", "\(first), which starts \(program ?? "nothing"), comes before \(shadowed.joined(separator: ", "))",
                remedy + ", or remove the first")
        ]
    }

    /// The program of its ExecStart=.
    private static func program(of unit: String) -> String? {
        guard let text = try? File.contents(of: unit.utf8) else { return nil }
        for line in String(decoding: text, as: UTF8.self).split(whereSeparator: \.isNewline) where line.hasPrefix("ExecStart=") {
            return line.dropFirst("ExecStart=".count).split(separator: " ").first.map(String.init)
        }
        return nil
    }

    /// Returns the existing files, each once, even if several links lead to it.
    private static func distinct(_ paths: [String], where isWanted: (stat) -> Bool) -> [String] {
        var seen: Set<[UInt64]> = []
        return paths.filter { path in
            var status = stat()
            return stat(path, &status) == 0 && isWanted(status)
                && seen.insert([UInt64(status.st_dev), UInt64(status.st_ino)]).inserted
        }
    }
}
