import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// The grants of one session of `grantfs mcp`: a view of its own, mounted as long as this process lives. When it ends, in any way, the
/// view's daemon removes everything (`TemporaryMount`).
final class MCPGrants {
    let store: GrantStore
    private let administrator: GrantAdministrator
    private let obeyed: [[UInt8]]
    let rules: GrantRules
    private let checkWritable: ([UInt8]) throws(GrantError) -> Void
    private var mounted: (mount: TemporaryMount, view: ViewName)?
    /// The directories that the program got and has not released, with the access, even if the
    /// grants have changed since.
    private var given: [(bookmark: Bookmark, access: Access)] = []

    /// `obeyed`: files that decide what this session grants, and so are never granted for writing.
    /// `rules`: those of each granted directory. `checkWritable` throws for one that may not be granted for writing.
    init(
        _ store: GrantStore, obeyed: [[UInt8]], rules: GrantRules, _ checkWritable: @escaping ([UInt8]) throws(GrantError) -> Void
    ) {
        (self.store, self.obeyed, self.rules, self.checkWritable) = (store, obeyed, rules, checkWritable)
        administrator = GrantAdministrator.command(store)
    }

    struct Shown: Sendable {
        let grant: Grant
        /// The path for the program.
        let place: [UInt8]

        /// For the program.
        var json: JSON {
            .object(
                JSON.members("path", place) + JSON.members("directory", grant.bookmark.path) + [
                    ("access", .string(grant.access.rawValue)), ("name", .string(grant.name.description)),
                    ("view", .string(grant.view.description)), ("grant", .string(grant.id.description)), JSON.rules(grant.rules),
                ])
        }
    }

    /// Returns the active grants.
    func all() throws(GrantError) -> [Shown] {
        guard let mounted else { return [] }
        return try store.grants(view: mounted.view).filter { $0.state(at: Instant(nanoseconds: Clock.realtime)) == .active }.map {
            show($0)
        }
    }

    private func show(_ grant: Grant) -> Shown {
        let mountpoint = mounted.map { Array($0.mount.mountpoint.utf8) } ?? []
        return Shown(grant: grant, place: CanonicalPath.join(mountpoint, grant.name.bytes))
    }

    func look(at path: [UInt8], for access: Access) throws(GrantError) -> GrantAdministrator.Proposal {
        let proposal = try GrantAdministrator.propose(directory: path, name: nil, store: store.directory, probe: .command)
        try ObeyedFiles.check(proposal.bookmark.path, access: access, named: obeyed)
        if access == .readWrite { try checkWritable(proposal.bookmark.path) }
        return proposal
    }

    /// Returns the grant of the same directory.
    func existing(_ proposal: GrantAdministrator.Proposal) throws(GrantError) -> Shown? {
        try all().first { Self.areSame($0.grant.bookmark, proposal.bookmark) }
    }

    /// Whether a person has withdrawn this access to the directory since the program got it.
    func wasTakenBack(_ proposal: GrantAdministrator.Proposal, _ access: Access) throws(GrantError) -> Bool {
        let had = given.contains {
            Self.areSame($0.bookmark, proposal.bookmark) && ($0.access == .readWrite || access == .readOnly)
        }
        guard had else { return false }
        let now = try existing(proposal)?.grant.access
        return now == nil || (now == .readOnly && access == .readWrite)
    }

    private static func areSame(_ one: Bookmark, _ other: Bookmark) -> Bool {
        one.identity == other.identity && one.filesystem == other.filesystem
    }

    /// Grants a proposal in the view, and remembers that the program got it.
    ///
    /// - Parameter rules: Those of the session, and the program's own.
    func grant(_ proposal: GrantAdministrator.Proposal, _ access: Access, _ rules: GrantRules) throws(GrantError) -> Shown {
        let shown = try record(proposal, access, rules)
        given.append((proposal.bookmark, shown.grant.access))
        return shown
    }

    /// Grants a proposal in the view, which is mounted for the first one. An existing grant is
    /// widened, and keeps its rules.
    private func record(_ proposal: GrantAdministrator.Proposal, _ access: Access, _ rules: GrantRules) throws(GrantError) -> Shown {
        if let shown = try existing(proposal) {
            if shown.grant.access == access || shown.grant.access == .readWrite { return shown }
            return show(try administrator.set(shown.grant, access: access, name: nil, expires: nil).grant)
        }
        let view = try begin()
        let taken = Set(try store.grants(view: view).map(\.name))
        var (name, number) = (proposal.name, 1)
        while taken.contains(name) {
            number += 1
            name = try RunCommand.numbered(proposal.name, number)
        }
        let choice = GrantAdministrator.Choice(proposal, name: name, view: view, access: access, rules: rules)
        return show(try administrator.grant([choice])[0].grant)
    }

    private func begin() throws(GrantError) -> ViewName {
        if let mounted { return mounted.view }
        let mount = try TemporaryMount.create(in: store, hasOwnView: true)
        do throws(GrantError) {
            let view = try ParsedArguments.view(named: mount.label)
            try RunCommand.mount(view, mount, store, isAudited: false)
            mounted = (mount, view)
            return view
        } catch {
            try? mount.clean()
            throw error
        }
    }

    /// Revokes and removes a grant, by its name, its path in the view, or its directory (canonical). `.notFound`.
    func release(_ word: [UInt8], directory: [UInt8]) throws(GrantError) -> Shown {
        let named = try all().first {
            $0.grant.name.bytes == word || $0.place == word || [word, directory].contains($0.grant.bookmark.path)
        }
        guard let shown = named else {
            throw GrantError(
                .notFound, "no directory “\(String(decoding: word, as: UTF8.self))” is granted in this session",
                advice: "see list_directories")
        }
        given.removeAll { Self.areSame($0.bookmark, shown.grant.bookmark) }
        let changes = try administrator.remove([shown.grant])
        guard changes.areConfirmed else {
            throw GrantError(.unconfirmed, "the withdrawal of “\(shown.grant.name)” is recorded and not confirmed yet")
        }
        return shown
    }

    /// Removes everything.
    func end() throws(GrantError) {
        guard let mounted else { return }
        try RunCommand.end(mounted.mount, store)
        self.mounted = nil
    }
}
