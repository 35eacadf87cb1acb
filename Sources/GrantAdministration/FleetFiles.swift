/// Files of a store that its part in a fleet has.
public enum FleetFiles {
    /// The credentials of the host, or of an administrator, as `grantfs fleet join` and `init` write them.
    public static func credentials(host: Bool, store: String) -> String { "\(store)/fleet/\(host ? "host" : "administrator").json" }
}
