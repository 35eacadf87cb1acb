import Foundation
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// The location of a path inside a mount of a view, from the mount table alone.
struct ViewPlace: Equatable {
    /// The view's name, which is the mount's source.
    let view: [UInt8]
    let mount: MountEntry
    /// The grant's name.
    let name: [UInt8]
    /// The path below the grant, or empty for the granted directory itself.
    let below: [UInt8]

    /// The granted directory in the mount, or nil if a directory below it was bound elsewhere.
    var directory: [UInt8]? { ViewPlace.directory(of: name, in: mount) }

    /// A mount shows the whole view or, bound elsewhere, one granted directory of it.
    static func directory(of name: [UInt8], in mount: MountEntry) -> [UInt8]? {
        if mount.root == [UInt8(ascii: "/")] { return CanonicalPath.join(mount.mountpoint, name) }
        return mount.root.dropFirst().elementsEqual(name) ? mount.mountpoint : nil
    }

    /// The result is nil for a path outside of every mount of a view, and for the root of one,
    /// which belongs to no grant. `path` is absolute and canonical.
    init?(_ path: [UInt8], in table: MountTable) {
        guard let entry = table.entry(holding: path), entry.type == GrantAdministrator.filesystemType,
            let below = FilePath.below(entry.mountpoint, path)
        else { return nil }
        let inside = FilePath.join(entry.root, below).drop { $0 == UInt8(ascii: "/") }
        if inside.isEmpty { return nil }
        let names = inside.split(separator: UInt8(ascii: "/"), maxSplits: 1)
        view = entry.source
        mount = entry
        name = Array(names[0])
        self.below = names.count > 1 ? Array(names[1]) : []
    }
}

/// The location of a path in a grant, whether it was named in a mount of the grant's view or in the granted directory itself.
struct GrantedPlace {
    let grant: Grant
    /// The present path of the granted directory, canonical.
    let directory: [UInt8]
    /// The path below it.
    let below: [UInt8]

    /// The path on the host.
    var source: [UInt8] { FilePath.join(directory, below) }
    /// The path in the view, which is the same in every mount: `/NAME` and the names below.
    var inView: [UInt8] { FilePath.join([UInt8(ascii: "/")] + grant.name.bytes, below) }

    /// Finds the grant that lets a program reach the path (canonical). Throws `.permission` if none
    /// is active, and the store's errors.
    ///
    /// In a mount it is the grant whose name the path begins with. On the host several may apply: it takes the innermost directory that
    /// holds the path, and of its grants the oldest.
    init(_ path: [UInt8], administrator: GrantAdministrator) throws(GrantError) {
        let (table, mounts) = try CurrentMounts.current()
        if let place = ViewPlace(path, in: table) {
            self = try GrantedPlace.inside(place, path, administrator, table)
            return
        }
        let grants = try administrator.store.grants()
        if let place = GrantedPlace.recorded(path, among: grants, mounts: mounts) {
            self = place
            return
        }
        let now = Instant(nanoseconds: Clock.realtime)
        // Tries those at their recorded paths first. The others are looked up only if none of them applies.
        for isNear in [true, false] {
            let candidates = GrantedPlace.active(grants, at: now) { MountTable.path(path, isAtOrBelow: $0) == isNear }
            if candidates.isEmpty { continue }
            let holding = administrator.describe(candidates).filter { $0.state == .active && MountTable.path(path, isAtOrBelow: $0.path) }
            let best = holding.max { ($0.path.count, $1.grant.created) < ($1.path.count, $0.grant.created) }
            if let best, let below = FilePath.below(best.path, path) {
                (grant, directory, self.below) = (best.grant, best.path, below)
                return
            }
        }
        throw GrantError(
            .permission, "“\(FilePath.shown(path))” is not granted", cause: "no active grant of the store leads there",
            advice: "grantfs grant DIR")
    }

    /// Finds the grant if its directory, and each other that holds the path by its recorded path, has not moved: then no mount has to be
    /// asked where it is. The result is nil if one has moved.
    static func recorded(_ path: [UInt8], among grants: [Grant], mounts: UInt64) -> GrantedPlace? {
        let candidates = active(grants, at: Instant(nanoseconds: Clock.realtime)) { MountTable.path(path, isAtOrBelow: $0) }
        guard !candidates.isEmpty, RecordedPlaces.process.hold(candidates, mounts: mounts),
            let best = candidates.max(by: { ($0.bookmark.path.count, $1.created) < ($1.bookmark.path.count, $0.created) }),
            let below = FilePath.below(best.bookmark.path, path)
        else { return nil }
        return GrantedPlace(grant: best, directory: best.bookmark.path, below: below)
    }

    /// Returns the active grants whose recorded paths are wanted. There may be thousands, so only these are copied.
    private static func active(_ grants: [Grant], at now: Instant, _ isWanted: ([UInt8]) -> Bool) -> [Grant] {
        grants.indices.filter { isWanted(grants[$0].bookmark.path) && grants[$0].state(at: now) == .active }.map { grants[$0] }
    }

    private init(grant: Grant, directory: [UInt8], below: [UInt8]) {
        (self.grant, self.directory, self.below) = (grant, directory, below)
    }

    private static func inside(
        _ place: ViewPlace, _ path: [UInt8], _ administrator: GrantAdministrator, _ table: MountTable
    ) throws(GrantError) -> GrantedPlace {
        let grant = try GrantedPlace.grant(of: place, path, administrator, table)
        let described = administrator.describe([grant])[0]
        try described.requireUsable()
        return GrantedPlace(grant: grant, directory: described.path, below: place.below)
    }

    /// Returns the grant that shows a location in a mount, from the store. Throws `.permission` if
    /// the mount belongs to another store.
    static func grant(
        of place: ViewPlace, _ path: [UInt8], _ administrator: GrantAdministrator, _ table: MountTable
    ) throws(GrantError) -> Grant {
        // However it is bound, the store knows the mount's filesystem.
        let mounts = try administrator.store.mounts().filter { record in
            (record.connection?.device ?? table.entry(mountpoint: record.mountpoint)?.device) == place.mount.device
        }
        guard let mount = mounts.last,
            let view = mount.shown.onlyView, Array(view.description.utf8) == place.view,
            let grant = try administrator.store.grants(view: view).first(where: { $0.name.bytes == place.name })
        else {
            throw GrantError(
                .permission, "“\(FilePath.shown(path))” is not granted",
                cause: "the mount at \(FilePath.shown(place.mount.mountpoint)) is of another store, or shows several views")
        }
        return grant
    }

    static func table() throws(GrantError) -> MountTable { try CurrentMounts.current().table }
}

extension GrantDescription {
    /// Throws `.permission` for a revoked or expired grant, `.notFound` if its directory was not
    /// found, `.ambiguous`.
    func requireUsable() throws(GrantError) {
        let what = "the grant “\(grant.name)” cannot be used"
        switch state {
        case .active where grant.isOffered:
            throw GrantError(
                .permission, what, cause: "it is only offered", advice: "grantfs set \(grant.id) --access \(grant.access.rawValue)")
        case .active: return
        case .revoked, .expired:
            throw GrantError(.permission, what, cause: "it is \(state.rawValue)", advice: "grantfs restore \(grant.id)")
        case .unavailable:
            throw GrantError(
                finding == .ambiguous ? .ambiguous : .notFound, what,
                cause: "its directory is \(finding.rawValue)" + (reason.map { ": \($0)" } ?? ""), advice: "grantfs repair")
        }
    }
}
