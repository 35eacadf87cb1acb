import GrantAdministration
import GrantModel
import GrantSystem

/// The form in which a process names files: in a mount, or on the host, perhaps through links.
struct PathForm: Sendable, Equatable {
    /// A directory on the host. `named` is the same one as it was named.
    let host: [UInt8]
    let named: [UInt8]
    /// The grant that shows the path in a mount, or nil on the host. Its directory may move on the
    /// host, and its name may change. The mountpoint is nil where only the granted directory was
    /// bound elsewhere.
    private let mounted: Mounted?

    private struct Mounted: Equatable {
        let grant: GrantID
        let mountpoint: [UInt8]?
    }

    /// Takes the form from `path`, by its text. In a mount whose store cannot be read, the mount counts as the host.
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

    /// Takes the path as it is given: nothing is looked up.
    init(plain path: [UInt8]) {
        let above = CanonicalPath.parent(of: path)
        self.init(host: above, named: above, mounted: nil)
    }

    private init(host: [UInt8], named: [UInt8], mounted: Mounted?) { (self.host, self.named, self.mounted) = (host, named, mounted) }

    /// Whether the path is in a mount. Then it must never be named otherwise.
    var isInMount: Bool { mounted != nil }

    /// Returns the present form for the same grant. It asks the mount's daemon for the directory,
    /// not its filesystem. It returns this form if the grant or the directory is unknown.
    func renewed(in environment: GrantEnvironment) -> PathForm {
        guard let mounted, let administrator = try? environment.administrator(),
            let grant = try? administrator.store.grant(mounted.grant),
            let directory = try? FileCoordination(administrator).path(of: grant)
        else { return self }
        let seen = mounted.mountpoint.map { CanonicalPath.join($0, grant.name.bytes) } ?? named
        return PathForm(host: directory, named: seen, mounted: mounted)
    }

    /// Whether a path on the host can be named in this form.
    func holds(_ path: [UInt8]) -> Bool { FilePath.below(host, path) != nil }

    /// Converts a path below `host` to this form. Other paths are unchanged.
    func named(_ path: [UInt8]) -> [UInt8] { FilePath.below(host, path).map { FilePath.join(named, $0) } ?? path }

    /// Converts a path below `named` to the host. Other paths are unchanged.
    func host(_ path: [UInt8]) -> [UInt8] { FilePath.below(named, path).map { FilePath.join(host, $0) } ?? path }
}
