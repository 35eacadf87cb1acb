import GrantModel

/// Where everything is in etcd. Hosts may read `format`, `bell`, their own registry entry and the grants of their audiences, and write below `hosts/ID/`.
enum FleetKeys {
    static let root = "grantfs/"
    static let format = "grantfs/format"
    /// Changed by each transaction that changes a grant or the registry; its value names the audiences concerned.
    static let bell = "grantfs/bell"
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
    /// Under the host's lease: which agent speaks for it.
    static func agent(_ host: String) -> String { "\(hosts)\(host)/agent" }
    /// Under the host's lease: how far it is.
    static func state(_ host: String) -> String { "\(hosts)\(host)/state" }

    static func log(at time: Instant) -> String {
        let digits = String(time.nanoseconds)
        return log + String(repeating: "0", count: max(0, 19 - digits.count)) + digits
    }
}

/// Users and roles in etcd.
enum FleetRoles {
    static let administrator = "grantfs-administrator"
    static func host(_ host: String) -> String { "grantfs-host-\(host)" }
    static func audience(_ audience: String) -> String { "grantfs-audience-\(audience)" }
}

/// What the fleet as a whole is: written by `grantfs fleet init`, read by everybody.
public struct FleetFormat: Sendable, Equatable {
    /// That of what is in etcd; a program that knows less leaves it alone.
    public static let version: Int64 = 1
    /// Higher after each time that a backup was restored, so that hosts notice.
    public var epoch: Int64
    /// Seconds.
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
