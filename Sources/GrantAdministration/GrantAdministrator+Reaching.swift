import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// Returns the grants, of every view and in any state, through which the directory can be
    /// reached: of itself, of a parent, of a subdirectory, of a directory that shows one of these
    /// by a mount inside. If it is gone, or its filesystem does not answer, its recorded path is
    /// compared.
    ///
    /// A path in a mount of this store means the directory that it shows. No daemon is asked. It
    /// throws `.notFound` for a name that the view does not have, and `.usage` for the view itself.
    public func grants(reaching given: [UInt8]) throws(GrantError) -> [Grant] {
        let table = try LoopCheck.currentTable()
        let directory = try hostPath(ofShown: CanonicalPath.plain(given), in: table) ?? given
        var looked = probe.ask([.canonical(directory), .bookmark(directory: directory)])
        var path = CanonicalPath.plain(directory)
        if case .canonical(let canonical) = looked[0] {
            path = canonical
            // A link leads into a view.
            if let shown = try hostPath(ofShown: canonical, in: table) {
                path = shown
                looked = probe.ask([.canonical(shown), .bookmark(directory: shown)])
                if case .canonical(let canonical) = looked[0] { path = canonical }
            }
        }
        var own: Bookmark?
        if case .bookmarked(let named) = looked[1] { own = named.bookmark }
        // A daemon in another mount namespace shows the mounts of that.
        let others = try store.mounts().compactMap { $0.mountTable(unlike: table) }
        let mounts = ([table] + others).map { ReachedPlaces($0) }
        let named = mounts[0].from(path)
        return describe(try store.grants()).filter { described in
            let bookmark = described.grant.bookmark
            if let own, own.filesystem == bookmark.filesystem, own.identity == bookmark.identity { return true }
            return mounts.contains { mounts in
                let reached = mounts.from(described.path)
                return reached.contains { $0.meets(named[0]) } || named.contains { $0.meets(reached[0]) }
            }
        }.map(\.grant)
    }

    /// Maps an absolute path in a mount of this store to the path on the host, or nil if it is in
    /// none.
    private func hostPath(ofShown path: [UInt8], in table: MountTable) throws(GrantError) -> [UInt8]? {
        guard let shown = try grant(showing: path, in: table) else { return nil }
        let top = describe([shown.grant])[0].path
        return shown.below.isEmpty ? top : CanonicalPath.join(top, shown.below)
    }

    /// Finds the grant that shows an absolute path in a mount of this store, and the path below its directory. Returns nil if
    /// the path is in no such mount.
    func grant(showing path: [UInt8], in table: MountTable) throws(GrantError) -> (grant: Grant, below: [UInt8])? {
        guard let entry = table.entry(holding: path), entry.type == GrantAdministrator.filesystemType else { return nil }
        let record = try store.mounts().first { record in
            record.connection.map { $0.device == DeviceNumber(major: entry.major, minor: entry.minor) }
                ?? (record.mountpoint == entry.mountpoint)
        }
        guard let record else { return nil }
        let names = (entry.root + path.dropFirst(entry.mountpoint.count)).split(separator: UInt8(ascii: "/")).map { Array($0) }
        let shown = String(decoding: path, as: UTF8.self)
        switch record.shown.find(names, among: try store.grants(record.shown)) {
        case .grant(let grant, let below):
            return (grant, Array(below.joined(separator: [UInt8(ascii: "/")])))
        case .above:
            throw GrantError(
                .usage, "\(shown) is the \(record.shown.description) itself",
                advice: "name a directory in it, or revoke each of its grants by name")
        case .nothing:
            throw GrantError(
                .notFound, "no grant leads to “\(shown)”",
                cause: "the \(record.shown.description) has none of the name “\(String(decoding: names[0], as: UTF8.self))”")
        }
    }
}
