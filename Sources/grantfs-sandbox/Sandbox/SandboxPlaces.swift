import GrantModel
import GrantSystem

/// The paths that are available in a sandbox.
enum SandboxPlaces {
    /// The default path of the view.
    static let standard = Array("/grants".utf8)

    /// Unavailable: read-only, the kernel's, or needed as a whole.
    private static let taken = ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/dev", "/sys"]
    /// Paths may be below these, but not replace or contain them.
    private static let shared = ["/tmp", "/var/tmp", "/run"]

    /// Throws `.usage` if a view cannot be shown there.
    static func check(_ place: [UInt8]) throws(GrantError) {
        guard let obstacle = obstacle(place) else { return }
        throw GrantError(
            .usage, "the view cannot be at “\(String(decoding: place, as: UTF8.self))”", cause: obstacle,
            advice: isPlain(place) ? nil : "--at \(String(decoding: standard, as: UTF8.self))")
    }

    /// Returns why nothing can be shown there, for people, or nil if it can.
    static func obstacle(_ place: [UInt8]) -> String? {
        guard isPlain(place) else { return "it is not a plain absolute path" }
        let isTaken = taken.contains { lies(place, at: $0) || lies(Array($0.utf8), at: place) }
        if isTaken || shared.contains(where: { lies(Array($0.utf8), at: place) }) { return "the sandbox has the system's own there" }
        return nil
    }

    /// Returns the caller's home, which is an empty directory, or another path if that would
    /// conflict with the system's or these paths.
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
