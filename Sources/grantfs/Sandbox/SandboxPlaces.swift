import GrantModel
import GrantSystem

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
        guard let obstacle = obstacle(place) else { return }
        throw GrantError(
            .usage, "the view cannot be at “\(String(decoding: place, as: UTF8.self))”", cause: obstacle,
            advice: isPlain(place) ? nil : "--at \(String(decoding: standard, as: UTF8.self))")
    }

    /// Why nothing can be shown there, in words for people; nil when it can.
    static func obstacle(_ place: [UInt8]) -> String? {
        guard isPlain(place) else { return "that is no plain absolute path" }
        let isTaken = taken.contains { lies(place, at: $0) || lies(Array($0.utf8), at: place) }
        if isTaken || shared.contains(where: { lies(Array($0.utf8), at: place) }) { return "the sandbox has the system's own there" }
        return nil
    }

    /// The caller's home, as an empty directory; another one where that would be in the way of what is shown at these places, or of the system.
    static func home(beside places: [[UInt8]]) -> [UInt8] {
        let spare = Array("/run/home".utf8)
        guard let home = SandboxEnvironment.value(of: "HOME"), obstacle(home) == nil,
            !places.contains(where: { MountTable.path(home, isAtOrBelow: $0) })
        else { return spare }
        return home
    }

    private static func isPlain(_ place: [UInt8]) -> Bool {
        let parts = place.split(separator: UInt8(ascii: "/"))
        return place.first == UInt8(ascii: "/") && !parts.isEmpty && place == normal(parts)
    }

    private static func lies(_ path: [UInt8], at directory: String) -> Bool { lies(path, at: Array(directory.utf8)) }
    private static func lies(_ path: [UInt8], at directory: [UInt8]) -> Bool { MountTable.path(path, isAtOrBelow: directory) }

    private static func normal(_ parts: [ArraySlice<UInt8>]) -> [UInt8] {
        parts.filter { !$0.elementsEqual(".".utf8) && !$0.elementsEqual("..".utf8) }.flatMap { [UInt8(ascii: "/")] + $0 }
    }
}
