import GrantAdministration
import GrantModel
import GrantSystem

/// How somebody names what others name otherwise: below a mount, or on the host, over links.
struct PathTerms: Sendable, Equatable {
    /// A directory of the host, and the same one as it was named.
    let host: [UInt8]
    let named: [UInt8]
    /// In a mount: the grant, whose directory may get another path on the host and whose name may change, and where the whole view is seen; nil where
    /// the granted directory alone was bound elsewhere.
    private let mounted: Mounted?

    private struct Mounted: Equatable {
        let grant: GrantID
        let mountpoint: [UInt8]?
    }

    /// Those of who named `path` (by its words). In a mount whose store cannot be read, what is seen in it counts as the host.
    init(of path: [UInt8], in environment: GrantEnvironment) {
        let above = CanonicalPath.parent(of: path)
        let directory = CanonicalPath.resolveWhatExists(above)
        let whole = CanonicalPath.join(directory, CanonicalPath.lastName(of: path))
        if let table = try? GrantedPlace.table(), let place = ViewPlace(whole, in: table), let directory = place.directory,
            let administrator = try? environment.administrator(),
            let granted = try? GrantedPlace(directory, administrator: administrator)
        {
            let isWhole = place.mount.root == [UInt8(ascii: "/")]
            self.init(
                host: granted.directory, named: directory,
                mounted: Mounted(grant: granted.grant.id, mountpoint: isWhole ? place.mount.mountpoint : nil))
        } else {
            self.init(host: directory, named: above, mounted: nil)
        }
    }

    private init(host: [UInt8], named: [UInt8], mounted: Mounted?) { (self.host, self.named, self.mounted) = (host, named, mounted) }

    /// Whether something in a mount was named: it is never to be named otherwise.
    var isInMount: Bool { mounted != nil }

    /// Those of now, of the same grant. The daemon of a mount is asked where it has the directory, so its filesystem is not. They stay as they are while
    /// nobody knows.
    func renewed(in environment: GrantEnvironment) -> PathTerms {
        guard let mounted, let administrator = try? environment.administrator(),
            let grant = try? administrator.store.grant(mounted.grant),
            let directory = try? FileCoordination(administrator).path(of: grant)
        else { return self }
        let seen = mounted.mountpoint.map { CanonicalPath.join($0, grant.name.bytes) } ?? named
        return PathTerms(host: directory, named: seen, mounted: mounted)
    }

    /// Whether a place of the host can be named.
    func holds(_ path: [UInt8]) -> Bool { FilePath.below(host, path) != nil }

    /// A place of the host, named so; what lies elsewhere stays as it is.
    func named(_ path: [UInt8]) -> [UInt8] { FilePath.below(host, path).map { FilePath.join(named, $0) } ?? path }

    /// Where on the host what is named so is; what lies elsewhere stays as it is.
    func host(_ path: [UInt8]) -> [UInt8] { FilePath.below(named, path).map { FilePath.join(host, $0) } ?? path }
}
