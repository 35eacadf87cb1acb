import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The file in which the process behind a mount of several cache modes says which grants it has mounted there. Commands wait for that,
/// because a grant's name is refused until then.
public struct PlacedGrants: Sendable {
    private let path: String

    /// `mount`: the record of the mount in which they are (`ShownViews.main`).
    public init(in mount: MountRecord, of store: GrantStore) { path = "\(store.runDirectory)/\(mount.id)\(PlacedGrants.suffix)" }

    private static let suffix = ".placed"

    /// All that decides how the grant is mounted.
    private static func line(_ grant: Grant) -> String {
        "\(grant.id) \(grant.activation) \(grant.access.rawValue) \(grant.cache?.rawValue ?? "-") \(Hexadecimal.text(grant.name.bytes))\n"
    }

    /// Replaces the file's contents, in one step for readers.
    public func write(_ grants: [Grant]) throws(Errno) {
        let text = Array(grants.map(PlacedGrants.line).joined().utf8)
        let new = path + ".new"
        let file = try FileDescriptor.open(new.utf8, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
        guard Glibc.write(file.number, text, text.count) == text.count else { throw Errno(EIO) }
        guard rename(new, path) == 0 else { throw Errno(errno) }
    }

    /// Whether the file says the same of both.
    public static func isSame(_ left: Grant, _ right: Grant) -> Bool { line(left) == line(right) }

    public func remove() { unlink(path) }

    /// Whether all these grants are mounted, as they are recorded. False if it cannot be read.
    public func hold(_ grants: [Grant]) -> Bool {
        guard let text = try? File.contents(of: path.utf8) else { return grants.isEmpty }
        let lines = Set(String(decoding: text, as: UTF8.self).split(separator: "\n").map { "\($0)\n" })
        return grants.allSatisfy { lines.contains(PlacedGrants.line($0)) }
    }
}
