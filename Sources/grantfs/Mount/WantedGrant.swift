import GrantModel
import GrantStore

/// A grant whose directory is to be mounted, from the mount of its cache mode.
struct WantedGrant: Equatable, Sendable {
    let grant: Grant
    /// The mount of its mode.
    let part: MountRecord

    /// Whether the same is to be mounted at the same name.
    static func == (left: WantedGrant, right: WantedGrant) -> Bool {
        left.grant.id == right.grant.id && left.grant.activation == right.grant.activation && left.grant.name == right.grant.name
            && left.part.id == right.part.id
    }
}
