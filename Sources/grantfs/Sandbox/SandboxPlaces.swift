import GrantModel
import LinuxFS

/// Where things may be in a sandbox.
enum SandboxPlaces {
    /// Where a view is when nobody says otherwise.
    static let standard = Array("/grants".utf8)

    /// Read-only, the kernel's, or needed whole.
    private static let taken = ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/dev", "/sys"]
    /// Something may lie below, and nothing in their place or above.
    private static let shared = ["/tmp", "/var/tmp", "/run"]

    /// `.usage` when a view cannot be shown there.
    static func check(_ place: [UInt8]) throws(GrantError) {
        let shown = String(decoding: place, as: UTF8.self)
        let parts = place.split(separator: UInt8(ascii: "/"))
        guard place.first == UInt8(ascii: "/"), !parts.isEmpty, place == normal(parts) else {
            throw GrantError(
                .usage, "the view cannot be at “\(shown)”", cause: "that is no plain absolute path",
                advice: "--at \(String(decoding: standard, as: UTF8.self))")
        }
        let isTaken = taken.contains { lies(place, at: $0) || lies(Array($0.utf8), at: place) }
        if isTaken || shared.contains(where: { lies(Array($0.utf8), at: place) }) {
            throw GrantError(.usage, "the view cannot be at “\(shown)”", cause: "the sandbox has the system's own there")
        }
    }

    /// The caller's home, as an empty directory; another one where that would be in the view's way or in the system's.
    static func home(beside place: [UInt8]) -> [UInt8] {
        let spare = Array("/run/home".utf8)
        guard let home = SandboxEnvironment.value(of: "HOME"), (try? check(home)) != nil, !MountTable.path(home, isAtOrBelow: place) else {
            return spare
        }
        return home
    }

    private static func lies(_ path: [UInt8], at directory: String) -> Bool { lies(path, at: Array(directory.utf8)) }
    private static func lies(_ path: [UInt8], at directory: [UInt8]) -> Bool { MountTable.path(path, isAtOrBelow: directory) }

    private static func normal(_ parts: [ArraySlice<UInt8>]) -> [UInt8] {
        parts.filter { !$0.elementsEqual(".".utf8) && !$0.elementsEqual("..".utf8) }.flatMap { [UInt8(ascii: "/")] + $0 }
    }
}
