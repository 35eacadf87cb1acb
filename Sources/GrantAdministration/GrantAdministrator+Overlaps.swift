import GrantModel
import GrantStore

/// Another grant through which files of a grant can be reached as well.
public struct Overlap: Sendable {
    public enum Relation: String, Sendable {
        /// Of the same directory.
        case same
        /// Of a directory that holds it.
        case above
        /// Of a directory inside it: some of its files.
        case below
    }

    public let grant: Grant
    public let relation: Relation
}

extension GrantAdministrator {
    /// The other active grants through which files of `grant` can be reached, of one view or of all, except those with these ids. It goes by what is
    /// recorded: no directory is looked at, so none makes anybody wait.
    public func overlaps(with grant: Grant, view: ViewName? = nil, except ids: Set<GrantID> = []) throws(GrantError) -> [Overlap] {
        let table = try Placement.currentTable()
        let place = Place(grant.bookmark.path, in: table)
        let now = GrantAdministrator.now
        return try store.grants(view: view).compactMap { other in
            guard other.id != grant.id, !ids.contains(other.id), other.state(at: now) == .active else { return nil }
            let (mine, theirs) = (grant.bookmark, other.bookmark)
            let otherPlace = Place(theirs.path, in: table)
            if mine.filesystem == theirs.filesystem && mine.identity == theirs.identity { return Overlap(grant: other, relation: .same) }
            // Two directories that stand at one path were there one after the other.
            if mine.path == theirs.path {
                // A document is what stands there.
                return mine.document != nil && theirs.document != nil ? Overlap(grant: other, relation: .same) : nil
            }
            if otherPlace.holds(place) { return Overlap(grant: other, relation: .above) }
            return place.holds(otherPlace) ? Overlap(grant: other, relation: .below) : nil
        }
    }
}
