import GrantModel
import GrantStore

/// Another grant that gives access to some of the same files.
public struct Overlap: Sendable {
    public enum Relation: String, Sendable {
        /// It is of the same directory.
        case same
        /// It is of a directory that contains this one.
        case above
        /// It is of a directory inside this one, so it has some of its files.
        case below
    }

    public let grant: Grant
    public let relation: Relation
}

extension GrantAdministrator {
    /// Returns the other active grants that give access to files of `grant`, in one view or in all, except those in `ids`. It compares
    /// recorded paths: no directory is looked up, so it never blocks.
    public func overlaps(with grant: Grant, view: ViewName? = nil, except ids: Set<GrantID> = []) throws(GrantError) -> [Overlap] {
        let table = try LoopCheck.currentTable()
        let place = Place(grant.bookmark.path, in: table)
        let now = GrantAdministrator.now
        return try store.grants(view: view).compactMap { other in
            guard other.id != grant.id, !ids.contains(other.id), other.state(at: now) == .active else { return nil }
            let (mine, theirs) = (grant.bookmark, other.bookmark)
            let otherPlace = Place(theirs.path, in: table)
            if mine.filesystem == theirs.filesystem && mine.identity == theirs.identity { return Overlap(grant: other, relation: .same) }
            // Two directories with one path existed one after the other.
            if mine.path == theirs.path {
                // A document is whatever file is at the path.
                return mine.document != nil && theirs.document != nil ? Overlap(grant: other, relation: .same) : nil
            }
            if otherPlace.holds(place) { return Overlap(grant: other, relation: .above) }
            return place.holds(otherPlace) ? Overlap(grant: other, relation: .below) : nil
        }
    }
}
