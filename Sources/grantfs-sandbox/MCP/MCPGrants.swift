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
    private let policy: RequestPolicy
    let rules: GrantRules
    private let checkWritable: ([UInt8]) throws(GrantError) -> Void
    private var mounted: (mount: TemporaryMount, view: ViewName)?
    /// The directories that the program got, even if the grants have changed since.
    private var given: [Given] = []

    /// What the program got, and what a person had changed when the program released it.
    private struct Given {
        let bookmark: Bookmark
        let access: Access
        let rules: GrantRules
        var left: (access: Access, rules: GrantRules)?
    }

    /// `obeyed`: files that decide what this session grants, and so are never granted for writing.
    /// `rules`: those of the policy, and more. `checkWritable` throws for a directory that may not be granted for writing.
    init(
        _ store: GrantStore, obeyed: [[UInt8]], _ policy: RequestPolicy, _ rules: GrantRules,
        _ checkWritable: @escaping ([UInt8]) throws(GrantError) -> Void
    ) {
        (self.store, self.obeyed, self.policy, self.rules, self.checkWritable) = (store, obeyed, policy, rules, checkWritable)
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
        guard CanonicalPath.isListed(proposal.bookmark.path) else {
            throw GrantError(
                .invalidDirectory, "“\(VisibleText.of(path))” is not the name by which the directory is listed",
                cause: "its filesystem finds other spellings as well, and the policy does not")
        }
        try ObeyedFiles.check(proposal.bookmark.path, access: access, named: obeyed)
        if access == .readWrite { try checkWritable(proposal.bookmark.path) }
        return proposal
    }

    /// Returns the grant of the same directory.
    func existing(_ proposal: GrantAdministrator.Proposal) throws(GrantError) -> Shown? {
        try all().first { Self.areSame($0.grant.bookmark, proposal.bookmark) }
    }

    // MARK: decisions of a person

    /// Whether a person has taken this access away since the program got it: from the directory, from one that contains it, or from
    /// one in it.
    func wasTakenBack(_ bookmark: Bookmark, _ access: Access) throws(GrantError) -> Bool {
        let all = try all().map(\.grant)
        return given.contains { given in
            let isSame = Self.areSame(given.bookmark, bookmark)
            let isInside = !isSame && MountTable.path(given.bookmark.path, isAtOrBelow: bookmark.path)
            guard isSame || isInside || MountTable.path(bookmark.path, isAtOrBelow: given.bookmark.path) else { return false }
            let current = all.first { Self.areSame($0.bookmark, given.bookmark) }
            guard let now = current.map({ ($0.access, $0.rules) }) ?? given.left else { return true }
            if now.0 == .readOnly, given.access == .readWrite, access == .readWrite { return true }
            // A grant of a directory above has other rules.
            return isInside && now.1 != given.rules
        }
    }

    /// Returns the rules for a directory, and whether the policy protects it. The result is nil if they hide it.
    ///
    /// They are those that the session's grants have there, and otherwise those of the policy.
    ///
    /// - Parameters:
    ///   - path: Without links.
    ///   - bookmark: The directory's, if it is known.
    func place(_ path: [UInt8], _ bookmark: Bookmark? = nil) throws(GrantError) -> GrantRules.Place? {
        guard let ofPolicy = try policy.place(path, of: rules) else { return nil }
        let released = given.compactMap { given in given.left.map { (bookmark: given.bookmark, rules: $0.rules) } }
        let known = released + (try recorded().map { (bookmark: $0.bookmark, rules: $0.rules) })
        if let bookmark, let same = known.last(where: { Self.areSame($0.bookmark, bookmark) }) {
            return GrantRules.Place(isProtected: ofPolicy.isProtected, rules: same.rules)
        }
        let above = known.filter { MountTable.path(path, isAtOrBelow: $0.bookmark.path) }
        guard let innermost = above.max(by: { $0.bookmark.path.count < $1.bookmark.path.count }) else { return ofPolicy }
        let place = try innermost.rules.place(at: Array(path.dropFirst(innermost.bookmark.path.count)))
        return place.map { GrantRules.Place(isProtected: $0.isProtected || ofPolicy.isProtected, rules: $0.rules) }
    }

    private func recorded() throws(GrantError) -> [Grant] {
        guard let mounted else { return [] }
        return try store.grants(view: mounted.view)
    }

    private static func areSame(_ one: Bookmark, _ other: Bookmark) -> Bool {
        one.identity == other.identity && one.filesystem == other.filesystem
    }

    /// Grants a proposal in the view, and remembers that the program got it.
    ///
    /// - Parameters:
    ///   - rules: Those of its place, and the program's own.
    ///   - isDecided: Whether a person has decided on this request. What was taken back before is then forgotten.
    func grant(
        _ proposal: GrantAdministrator.Proposal, _ access: Access, _ rules: GrantRules, isDecided: Bool
    ) throws(GrantError) -> Shown {
        let shown = try record(proposal, access, rules)
        // It is followed wherever it is moved, and the rules are those of this place. From now on a rename by way of another grant
        // is refused if its rules see a difference.
        do throws(GrantError) {
            let now = try look(at: proposal.bookmark.path, for: access).bookmark
            guard now.path == proposal.bookmark.path, Self.areSame(now, proposal.bookmark) else {
                throw GrantError(.invalidDirectory, "the directory was moved while it was granted")
            }
        } catch {
            _ = try administrator.remove([shown.grant])
            throw error
        }
        let before = given.first { Self.areSame($0.bookmark, proposal.bookmark) }
        given.removeAll { Self.areSame($0.bookmark, proposal.bookmark) }
        let most = !isDecided && before?.access == .readWrite ? Access.readWrite : shown.grant.access
        let rules = isDecided ? shown.grant.rules : before?.rules ?? shown.grant.rules
        given.append(Given(bookmark: proposal.bookmark, access: most, rules: rules))
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
        note(release: shown.grant)
        let changes = try administrator.remove([shown.grant])
        guard changes.areConfirmed else {
            throw GrantError(.unconfirmed, "the withdrawal of “\(shown.grant.name)” is recorded and not confirmed yet")
        }
        return shown
    }

    /// A person's changes hold when the directory is requested again.
    private func note(release grant: Grant) {
        guard let index = given.firstIndex(where: { Self.areSame($0.bookmark, grant.bookmark) }) else { return }
        if grant.rules == given[index].rules, grant.access == given[index].access {
            given.remove(at: index)
        } else {
            given[index].left = (grant.access, grant.rules)
        }
    }

    /// Removes everything.
    func end() throws(GrantError) {
        guard let mounted else { return }
        try RunCommand.end(mounted.mount, store)
        self.mounted = nil
    }
}
