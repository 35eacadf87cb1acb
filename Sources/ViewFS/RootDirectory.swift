import Glibc
import GrantModel
import LinuxFS

/// The names at the root of the mount.
///
/// Locking: one lock around the table, rank 2; lookups of grants are few, because the kernel keeps what it found.
public final class RootDirectory: Sendable {
    /// What stands behind a name.
    public enum Place: Sendable {
        case open(Scope)
        /// Revoked or expired: EACCES, not listed.
        case refused(GrantID)
    }

    private struct Table {
        var places: [GrantName: Place] = [:]
        var changed: Int64 = Clock.realtime
    }

    private let table = Lock(Table())

    public func place(_ name: GrantName) -> Place? { table.withLock { $0.places[name] } }

    /// Puts `place` behind `name`; nil takes the name away. Returns what was there.
    @discardableResult
    public func set(_ name: GrantName, _ place: Place?) -> Place? {
        table.withLock { table in
            table.changed = Clock.realtime
            defer { table.places[name] = place }
            return table.places[name]
        }
    }

    /// Name and scope of all that is listed, in the order of their scopes' numbers, which never come twice.
    public var open: [(name: GrantName, scope: Scope)] {
        let all = table.withLock { table in
            table.places.compactMap { name, place -> (name: GrantName, scope: Scope)? in
                if case .open(let scope) = place { (name, scope) } else { nil }
            }
        }
        return all.sorted { $0.scope.id.rawValue < $1.scope.id.rawValue }
    }

    /// When a name last came or went, in nanoseconds since 1970.
    public var changed: Int64 { table.withLock { $0.changed } }
}
