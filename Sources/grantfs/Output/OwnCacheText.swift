import GrantAdministration
import GrantModel
import GrantStore

/// What is said of grants with a cache mode of their own.
enum OwnCacheText {
    /// A line for each running mount that shows the grant in the mount's mode, because it was made without daemons for modes.
    static func lines(of grant: Grant, in store: GrantStore) throws(GrantError) -> [String] {
        guard let cache = grant.cache else { return [] }
        return try store.mounts(view: grant.view).compactMap { record in
            guard case .one = record.shown, record.process.isRunning else { return nil }
            let place = String(decoding: record.mountpoint, as: UTF8.self)
            return "the mount at \(place) shows “\(grant.name)” in its own cache mode, unless that is \(cache.rawValue) as well, "
                + "until root unmounts it and mounts it again"
        }
    }
}
