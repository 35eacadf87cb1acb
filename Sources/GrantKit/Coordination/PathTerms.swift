import GrantAdministration
import GrantModel
import LinuxFS

/// How somebody names what others name otherwise: below a mount, or on the host, over links.
struct PathTerms: Sendable {
    /// A directory of the host, and the same one as it was named.
    private let host: [UInt8]
    private let named: [UInt8]

    /// Those of who named `path` (by its words). In a mount whose store cannot be read, what is seen in it counts as the host.
    init(of path: [UInt8], in environment: GrantEnvironment) {
        let above = CanonicalPath.parent(of: path)
        let directory = CanonicalPath.resolveWhatExists(above)
        let whole = CanonicalPath.join(directory, CanonicalPath.lastName(of: path))
        if let table = try? GrantedPlace.table(), let mounted = ViewPlace(whole, in: table)?.directory,
            let administrator = try? environment.administrator(),
            let granted = try? GrantedPlace(mounted, administrator: administrator)
        {
            (host, named) = (granted.directory, mounted)
        } else {
            (host, named) = (directory, above)
        }
    }

    /// A place of the host, named so; what lies elsewhere stays as it is.
    func named(_ path: [UInt8]) -> [UInt8] { FilePath.below(host, path).map { FilePath.join(named, $0) } ?? path }

    /// Where on the host what is named so is; what lies elsewhere stays as it is.
    func host(_ path: [UInt8]) -> [UInt8] { FilePath.below(named, path).map { FilePath.join(host, $0) } ?? path }
}
