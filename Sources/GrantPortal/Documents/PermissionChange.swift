import GrantSystem

/// A change of an application's permissions that the portal wants in the permission store.
///
/// The permission store has no conditional write. So a change names the permissions given and taken
/// away, and is applied to the store's permissions immediately before the write.
struct PermissionChange: Sendable {
    /// What the permission store was believed to have.
    let old: Permissions
    let new: Permissions

    /// Returns the new permissions if the permission store has `now`. If another program has taken
    /// something away, that counts as the later change, and nothing is given any more.
    func applied(to now: Permissions) -> Permissions {
        let left = takenAway(from: now)
        return now.isSuperset(of: old.intersection(new)) ? left.union(new.subtracting(old)) : left
    }

    /// What the permissions become when the change only takes away, and gives nothing.
    func takenAway(from now: Permissions) -> Permissions { now.subtracting(old.subtracting(new)) }
}

/// The changes of an application's permissions in the permission store, in their order there, from one of its answers on.
struct PermissionHistory: Sendable {
    /// The permissions now.
    private(set) var value: Permissions
    /// The permissions before their last change.
    private(set) var before: Permissions
    /// How many changes of the document were announced, of other applications' permissions as well.
    private(set) var changes = 0
    /// The number of the last announcement by which these permissions stayed as they were.
    private var repeated = 0
    /// The same, as it was when the permissions changed last. 0 when there was no such announcement.
    private(set) var repeatedBefore = 0

    init(_ value: Permissions) { (self.value, before) = (value, value) }

    /// The permission store has announced a change of the document, after which these are the permissions.
    ///
    /// If they have not changed, another program has changed another application's permissions, or
    /// has written these again. The second may be the removal of a permission that was given a
    /// moment ago and that this service has overwritten already. So `before` loses the permissions
    /// that are not there now, and the gift is not written again.
    mutating func hear(_ new: Permissions) {
        changes += 1
        guard new == value else { return see(new) }
        repeated = changes
        before.formIntersection(value)
    }

    /// The permission store has answered that these are the permissions.
    mutating func see(_ new: Permissions) {
        guard new != value else { return }
        (value, before, repeatedBefore) = (new, value, repeated)
    }
}

/// The histories of those permissions that the portal is changing.
///
/// Locking: one lock, for a look or a change.
final class PermissionHistories: Sendable {
    private let histories = Lock<[DocumentState.Key: PermissionHistory]>([:])

    /// Begins a history with the permission store's answer, or adds the answer to the existing
    /// history.
    func follow(_ key: DocumentState.Key, _ value: Permissions) -> PermissionHistory {
        histories.withLock { histories in
            histories[key, default: PermissionHistory(value)].see(value)
            return histories[key] ?? PermissionHistory(value)
        }
    }

    func history(of key: DocumentState.Key) -> PermissionHistory? { histories.withLock { $0[key] } }

    func end(_ key: DocumentState.Key) { histories.withLock { $0[key] = nil } }

    func end(_ id: String) { histories.withLock { histories in histories = histories.filter { $0.key.id != id } } }

    /// The permission store has announced a change of a document, after which these are its
    /// permissions, or none when it was deleted.
    func hear(_ id: String, _ permissions: [String: Permissions]) {
        histories.withLock { histories in
            for key in histories.keys where key.id == id { histories[key]?.hear(permissions[key.app] ?? []) }
        }
    }
}
