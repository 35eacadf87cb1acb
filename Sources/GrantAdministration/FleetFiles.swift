/// Files of a store that belong to a fleet.
package enum FleetFiles {
    /// The credentials of the host, or of an administrator, as `grantfs fleet join` and `init` write them.
    package static func credentials(host: Bool, store: String) -> String { "\(store)/fleet/\(host ? "host" : "administrator").json" }
}
