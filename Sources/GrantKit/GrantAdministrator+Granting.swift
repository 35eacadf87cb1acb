import Bookmarks
import GrantModel
import GrantStore
import LinuxFS

extension GrantAdministrator {
    /// A directory that was looked at and may be granted, before anything is written.
    public struct Proposal: Sendable {
        public let bookmark: Bookmark
        public let name: GrantName
        let mountDevice: DeviceNumber
    }

    /// Bookmarks a directory. `name` nil takes the directory's own name. `.invalidDirectory`, also when it has to do with the
    /// store's directory, which need not exist yet; `.usage` when it has no name.
    public static func propose(directory: [UInt8], name: GrantName?, store: String) throws(GrantError) -> Proposal {
        let found = try BookmarkResolver().bookmark(directory: directory)
        try Placement.check(found.bookmark.path, store: store)
        if Trash.holds(found.bookmark.path) {
            let shown = String(decoding: found.bookmark.path, as: UTF8.self)
            throw GrantError(.invalidDirectory, "“\(shown)” cannot be granted", cause: "it lies in a Trash")
        }
        let device = DeviceNumber(major: found.mount.major, minor: found.mount.minor)
        if let name { return Proposal(bookmark: found.bookmark, name: name, mountDevice: device) }
        let own = found.bookmark.path.split(separator: UInt8(ascii: "/")).last ?? []
        guard let name = try? GrantName(entry: Array(own)) else {
            throw GrantError(.usage, "the grant needs a name", cause: "the directory has none of its own", advice: "--name NAME")
        }
        return Proposal(bookmark: found.bookmark, name: name, mountDevice: device)
    }

    /// Grants what was proposed. `.invalidDirectory` when it holds or lies in the store or one of its mounts, `.alreadyExists`
    /// when the name is taken. Nothing is changed then.
    public func grant(
        _ proposal: Proposal, view: ViewName, access: Access, expires: Instant?, timeout: Double = standardTimeout
    ) throws(GrantError) -> GrantChange {
        try Placement(store: store).check(proposal.bookmark.path, device: proposal.mountDevice)
        let grant = Grant(
            id: .random(), view: view, name: proposal.name, bookmark: proposal.bookmark, access: access, created: GrantAdministrator.now,
            expires: expires)
        try store.insert(grant, by: actor)
        return try announce([grant], timeout)[0]
    }
}
