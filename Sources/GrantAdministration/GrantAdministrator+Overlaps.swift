import GrantModel
import GrantStore

/// Another grant that gives access to some of the same files.
public struct Overlap: Sendable {
    public enum Relation: String, Sendable {
        /// It is of the same directory.
        case same
        /// It is of a directory that contains this one, or shows it by a mount inside.
        case above
        /// It has some of its files: it is of a directory inside this one, or a mount inside one of the two shows some.
        case below
    }

    public let grant: Grant
    public let relation: Relation
}

extension GrantAdministrator {
    /// Returns the other active grants that give access to files of `grant`, in one view or in all, except those in `ids`. It compares
    /// recorded paths: no directory is looked up, so it never blocks.
    public func overlaps(with grant: Grant, view: ViewName? = nil, except ids: Set<GrantID> = []) throws(GrantError) -> [Overlap] {
        let mounts = ReachedPlaces(try LoopCheck.currentTable())
        let reached = mounts.from(grant.bookmark.path)
        let now = GrantAdministrator.now
        return try store.grants(view: view).compactMap { other in
            guard other.id != grant.id, !ids.contains(other.id), other.state(at: now) == .active else { return nil }
            let (mine, theirs) = (grant.bookmark, other.bookmark)
            if mine.filesystem == theirs.filesystem && mine.identity == theirs.identity { return Overlap(grant: other, relation: .same) }
            // Two directories with one path existed one after the other.
            if mine.path == theirs.path {
                // A document is identified by its path, because a save replaces the file.
                return mine.document != nil && theirs.document != nil ? Overlap(grant: other, relation: .same) : nil
            }
            let others = mounts.from(theirs.path)
            if others.contains(where: { $0.holds(reached[0]) }) { return Overlap(grant: other, relation: .above) }
            let hasPart = others.contains { reached[0].holds($0) } || reached.contains { $0.meets(others[0]) }
            return hasPart ? Overlap(grant: other, relation: .below) : nil
        }
    }
}
