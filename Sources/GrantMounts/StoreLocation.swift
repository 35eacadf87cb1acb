import Glibc
import GrantModel
import GrantSystem

/// The directory of the store.
public enum StoreLocation {
    /// The given one, else `$GRANTFS_STORE`, else `/var/lib/grantfs` for root and
    /// `$XDG_DATA_HOME/grantfs` for others. Absolute. Throws `.usage` if a path is empty or not
    /// UTF-8, `.storeUnavailable` if there is no home directory either.
    public static func directory(explicit: [UInt8]?) throws(GrantError) -> String {
        if let explicit { return try absolute(explicit, "the store directory") }
        if let set = environment("GRANTFS_STORE") { return try absolute(set, "$GRANTFS_STORE") }
        if geteuid() == 0 { return "/var/lib/grantfs" }
        // The XDG specification says to ignore a relative path.
        if let data = environment("XDG_DATA_HOME"), data.first == UInt8(ascii: "/") {
            return try absolute(data, "$XDG_DATA_HOME") + "/grantfs"
        }
        if let home = environment("HOME") { return try absolute(home, "$HOME") + "/.local/share/grantfs" }
        throw GrantError(
            .storeUnavailable, "no place for the store is known", cause: "$HOME is not set", advice: "name one with --store DIR")
    }

    private static func environment(_ name: String) -> [UInt8]? {
        guard let value = getenv(name) else { return nil }
        let bytes = Array(UnsafeBufferPointer(start: value, count: strlen(value))).map { UInt8(bitPattern: $0) }
        return bytes.isEmpty ? nil : bytes
    }

    private static func absolute(_ path: [UInt8], _ what: String) throws(GrantError) -> String {
        if path.isEmpty { throw GrantError(.usage, "\(what) is wrong", cause: "it is empty") }
        // A store would be made in a directory with that name.
        if path == [0x7E] || path.starts(with: [0x7E, 0x2F]), let advice = UnexpandedHome.advice(for: path) {
            throw GrantError(.usage, "\(what) is wrong", cause: "it begins with ~", advice: advice)
        }
        guard let text = String(validating: CanonicalPath.absolute(path), as: UTF8.self) else {
            throw GrantError(.usage, "\(what) is wrong", cause: "it is not UTF-8")
        }
        return text
    }
}
