import Glibc
import GrantAdministration
import GrantSystem

/// What a Flatpak application may reach without a document: by `filesystems=host` and `home` in its metadata and the overrides. Other words are passed over, so that a
/// document too many is made and never one too few.
enum AppFiles {
    private enum Reach: Int { case nothing, reading, writing }

    /// Whether the application reaches the file at the path in this way by itself.
    static func reaches(_ app: String, _ path: [UInt8], writing: Bool) -> Bool {
        guard DocumentNames.isApp(app), !["/usr", "/app", "/tmp", "/run", "/proc", "/dev"].contains(where: { isBelow(path, $0) }) else {
            return false
        }
        let home = getenv("HOME").map { String(cString: $0) } ?? ""
        let data = getenv("XDG_DATA_HOME").map { String(cString: $0) } ?? home + "/.local/share"
        let (own, system) = (data + "/flatpak", "/var/lib/flatpak")
        var (host, atHome) = (Reach.nothing, Reach.nothing)
        let files = [
            "\(system)/app/\(app)/current/active/metadata", "\(own)/app/\(app)/current/active/metadata", "\(system)/overrides/global",
            "\(system)/overrides/\(app)", "\(own)/overrides/global", "\(own)/overrides/\(app)",
        ]
        for file in files {
            guard let text = try? File.contents(of: file.utf8) else { continue }
            for list in KeyFile(text).values("filesystems", in: ["Context"]) {
                for word in list.split(separator: ";") {
                    switch word {
                    case "!host": host = .nothing
                    case "host:ro": host = .reading
                    case "host", "host:rw": host = .writing
                    case "!home": atHome = .nothing
                    case "home:ro": atHome = .reading
                    case "home", "home:rw": atHome = .writing
                    default: break
                    }
                }
            }
        }
        let wanted = (writing ? Reach.writing : .reading).rawValue
        if host.rawValue >= wanted { return true }
        return atHome.rawValue >= wanted && !home.isEmpty && isBelow(path, home)
    }

    private static func isBelow(_ path: [UInt8], _ directory: String) -> Bool {
        MountTable.path(path, isAtOrBelow: Array(directory.utf8))
    }
}
