import GrantSystem

/// A change of an application's permissions that the portal wants in the permission store.
///
/// The permission store can neither change them under a condition nor say that somebody else was faster. So a change is not what they are to be, but what is given and taken
/// away; and it is applied to what the permission store had immediately before it was written.
struct PermissionChange: Sendable {
    /// What the permission store was believed to have.
    let old: Permissions
    let new: Permissions

    /// What they become when this is what the permission store has. Where somebody else has taken something away, that comes last: nothing is given any more.
    func applied(to now: Permissions) -> Permissions {
        let left = now.subtracting(old.subtracting(new))
        return now.isSuperset(of: old.intersection(new)) ? left.union(new.subtracting(old)) : left
    }
}

/// What becomes of an application's permissions in the permission store from an answer on, in the order in which they change there.
struct PermissionHistory: Sendable {
    /// What it has.
    private(set) var value: Permissions
    /// What it had before that.
    private(set) var before: Permissions
    /// How many changes of the document were heard of, of other applications' permissions as well.
    private(set) var changes = 0

    init(_ value: Permissions) { (self.value, before) = (value, value) }

    /// After somebody's change.
    mutating func hear(_ new: Permissions) {
        changes += 1
        see(new)
    }

    /// Whatever has changed them.
    mutating func see(_ new: Permissions) {
        guard new != value else { return }
        (value, before) = (new, value)
    }
}

/// The histories of permissions that the portal is changing.
///
/// Locking: one lock, for a look or a change.
final class PermissionHistories: Sendable {
    private let histories = Lock<[DocumentState.Key: PermissionHistory]>([:])

    /// Begins with what the permission store has answered, or goes on.
    func follow(_ key: DocumentState.Key, _ value: Permissions) -> PermissionHistory {
        histories.withLock { histories in
            histories[key, default: PermissionHistory(value)].see(value)
            return histories[key] ?? PermissionHistory(value)
        }
    }

    func history(of key: DocumentState.Key) -> PermissionHistory? { histories.withLock { $0[key] } }

    func end(_ key: DocumentState.Key) { histories.withLock { $0[key] = nil } }

    func end(_ id: String) { histories.withLock { histories in histories = histories.filter { $0.key.id != id } } }

    /// The permission store says that a document was changed, or deleted, with which nobody has a permission.
    func hear(_ id: String, _ permissions: [String: Permissions]) {
        histories.withLock { histories in
            for key in histories.keys where key.id == id { histories[key]?.hear(permissions[key.app] ?? []) }
        }
    }
}
