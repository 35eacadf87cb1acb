import GrantAdministration
import GrantModel

/// The PATH argument of `coordinate` and `present`.
enum CoordinatedPlace {
    /// A word without a slash is a grant's name or id, if there is such a grant. Otherwise it is a
    /// file, which need not exist.
    static func of(
        _ path: [UInt8], _ administrator: GrantAdministrator, _ coordination: FileCoordination, view: ViewName?
    ) throws(GrantError) -> [UInt8] {
        if path.isEmpty { throw GrantError(.usage, "a PATH is empty") }
        if path.contains(UInt8(ascii: "/")) { return CanonicalPath.absolute(path) }
        let grant: Grant
        do throws(GrantError) {
            grant = try administrator.select([try Selector(path)], view: view)[0]
        } catch {
            if error.code == .notFound, view == nil { return CanonicalPath.absolute(path) }
            throw error
        }
        do throws(CoordinationError) {
            if grant.state != .active { throw .revoked(grant.bookmark.path) }
            return try coordination.path(of: grant)
        } catch {
            throw error.grantError
        }
    }
}
