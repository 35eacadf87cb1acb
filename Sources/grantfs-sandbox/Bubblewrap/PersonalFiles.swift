import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// Tells a person's files, which `grantfs bwrap` grants, from the system's.
struct PersonalFiles {
    /// Canonical.
    private let homes: [[UInt8]]

    private static let system = [
        "/bin", "/boot", "/dev", "/efi", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found", "/nix", "/opt", "/proc",
        "/run", "/sbin", "/snap", "/sys", "/tmp", "/usr", "/var",
    ].map { Array($0.utf8) }
    private static let media = Array("/run/media".utf8)
    private static let temporary = ["/tmp", "/var/tmp"].map { Array($0.utf8) }
    /// The directories of /tmp with the sockets of displays. A program can choose owner and mode of its own directories, but not these names.
    private static let shared = [".X11-unix", ".ICE-unix", ".XIM-unix", ".font-unix", ".Test-unix"].map { Array($0.utf8) }

    init() {
        let named = [SandboxEnvironment.value(of: "HOME"), getpwuid(geteuid()).map { Array(String(cString: $0.pointee.pw_dir).utf8) }]
        homes = named.compactMap { $0 }.compactMap { try? CanonicalPath.resolve($0) }
            .filter { $0 != [0x2F] && !Self.system.contains($0) }
    }

    /// - Parameter path: Canonical.
    func contain(_ path: [UInt8]) -> Bool {
        if path == [0x2F] { return false }
        if homes.contains(where: { MountTable.path(path, isAtOrBelow: $0) }) { return true }
        if let above = Self.temporary.first(where: { $0 != path && MountTable.path(path, isAtOrBelow: $0) }) {
            return !Self.shared.contains { $0.elementsEqual(path.dropFirst(above.count + 1).prefix { $0 != 0x2F }) }
        }
        if path != Self.media, MountTable.path(path, isAtOrBelow: Self.media) { return true }
        return !Self.system.contains { MountTable.path(path, isAtOrBelow: $0) }
    }
}
