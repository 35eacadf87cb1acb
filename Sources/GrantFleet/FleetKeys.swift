import GrantModel

/// The layout of keys in etcd. Hosts may read `format`, `bell`, their own registry entry and the grants of their audiences, and write
/// below `hosts/ID/`.
enum FleetKeys {
    static let root = "grantfs/"
    static let format = "grantfs/format"
    /// The change signal: every transaction that changes a grant or the registry writes it. Its value names the audiences concerned.
    static let changeSignal = "grantfs/bell"
    static let grants = "grantfs/grants/"
    static let names = "grantfs/names/"
    static let registry = "grantfs/registry/"
    static let hosts = "grantfs/hosts/"
    static let log = "grantfs/log/"

    static func grants(for audience: String) -> String { "\(grants)\(audience)/" }
    static func grant(_ grant: FleetGrant) -> String { grants(for: grant.hosts.audience) + grant.id.description }
    static func name(_ grant: FleetGrant) -> String { "\(names)\(grant.view)/\(grant.name)" }
    static func registry(_ host: String) -> String { registry + host }
    static func host(_ host: String) -> String { "\(hosts)\(host)/" }
    /// The agent that acts for the host. The key has the host's lease.
    static func agent(_ host: String) -> String { "\(hosts)\(host)/agent" }
    /// Written at each renewal as long as the host has not confirmed every change. The key has the host's lease.
    static func alive(_ host: String) -> String { "\(hosts)\(host)/alive" }
    /// Never there: deleting it is a write that changes nothing.
    static func none(_ host: String) -> String { "\(hosts)\(host)/none" }
    /// The host's progress. The key has the host's lease.
    static func state(_ host: String) -> String { "\(hosts)\(host)/state" }

    static func log(at time: Instant) -> String {
        let digits = String(time.nanoseconds)
        return log + String(repeating: "0", count: max(0, 19 - digits.count)) + digits
    }
}

/// Names of users and roles in etcd.
enum FleetRoles {
    static let administrator = "grantfs-administrator"
    static func host(_ host: String) -> String { "grantfs-host-\(host)" }
    static func audience(_ audience: String) -> String { "grantfs-audience-\(audience)" }
}

/// Properties of the whole fleet, written by `grantfs fleet init` and read by every member.
public struct FleetFormat: Sendable, Equatable {
    /// The version of the data in etcd. An older program does not touch it.
    public static let version: Int64 = 1
    /// Increases each time a backup was restored, so that hosts notice.
    public var epoch: Int64
    /// The duration of leases, in seconds.
    public var lease: Int64

    var json: JSONValue { .object(["format": .integer(FleetFormat.version), "epoch": .integer(epoch), "lease": .integer(lease)]) }

    /// `.storeNewer`, `.storeDamaged`.
    init(_ bytes: [UInt8]) throws(GrantError) {
        guard let json = try? JSONValue(text: bytes), let version = json["format"]?.integer else {
            throw GrantError(.storeDamaged, "the fleet cannot be used", cause: "what etcd has at \(FleetKeys.format) makes no sense")
        }
        guard version == FleetFormat.version else {
            throw GrantError(
                .storeNewer, "the fleet cannot be used",
                cause: "it is of version \(version), and this program knows \(FleetFormat.version)",
                advice: "upgrade grantfs on this host")
        }
        guard let epoch = json["epoch"]?.integer, let lease = json["lease"]?.integer, lease >= 2 else {
            throw GrantError(.storeDamaged, "the fleet cannot be used", cause: "what etcd has at \(FleetKeys.format) makes no sense")
        }
        (self.epoch, self.lease) = (epoch, lease)
    }

    init(epoch: Int64, lease: Int64) { (self.epoch, self.lease) = (epoch, lease) }
}
