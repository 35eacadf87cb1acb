import Glibc
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
    let administrator: GrantAdministrator
    private let obeyed: [[UInt8]]
    let policy: RequestPolicy
    let rules: GrantRules
    private let checkWritable: ([UInt8]) throws(GrantError) -> Void
    private var mounted: (mount: TemporaryMount, view: ViewName)?
    /// The grants that the program got, also those that it has released.
    private var given: [(grant: GrantID, bookmark: Bookmark)] = []
    /// Those that another process has changed or withdrawn, as the log tells.
    private var changed = Set<GrantID>()
    /// How often the program has given each directory back.
    private var releases: [FileIdentity: Int] = [:]
    private var lastEntry: Int64

    /// `obeyed`: files that decide what this session grants, and so are never granted for writing.
    /// `rules`: those of the policy, and more. `checkWritable` throws for a directory that may not be granted for writing.
    init(
        _ store: GrantStore, obeyed: [[UInt8]], _ policy: RequestPolicy, _ rules: GrantRules,
        _ checkWritable: @escaping ([UInt8]) throws(GrantError) -> Void
    ) throws(GrantError) {
        (self.store, self.obeyed, self.policy, self.rules, self.checkWritable) = (store, obeyed, policy, rules, checkWritable)
        administrator = GrantAdministrator.command(store)
        lastEntry = try store.lastLogNumber()
    }

    struct Shown: Sendable {
        let grant: Grant
        /// The path for the program, and the one on the host.
        var place: [UInt8]
        var directory: [UInt8]

        /// For the program.
        var json: JSON {
            .object(
                JSON.members("path", place) + JSON.members("directory", directory) + [
                    ("access", .string(grant.access.rawValue)), ("name", .string(grant.name.description)),
                    ("view", .string(grant.view.description)), ("grant", .string(grant.id.description)), JSON.rules(grant.rules),
                    ("expires", JSON.time(grant.expires)),
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

    func show(_ grant: Grant) -> Shown {
        let mountpoint = mounted.map { Array($0.mount.mountpoint.utf8) } ?? []
        return Shown(grant: grant, place: CanonicalPath.join(mountpoint, grant.name.bytes), directory: grant.bookmark.path)
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

    /// Returns the rules for a directory, and whether they protect it. The result is nil if they hide it.
    ///
    /// - Parameter path: Without links.
    func place(_ path: [UInt8]) throws(GrantError) -> GrantRules.Place? { try policy.place(path, of: rules) }

    // MARK: decisions of a person

    /// Whether a person has changed or withdrawn a grant that the program got: of this directory, of one that contains it, or of
    /// one in it. The end of the requested time does not count.
    func wasTakenBack(_ bookmark: Bookmark) throws(GrantError) -> Bool {
        try noteChanges()
        return given.contains { changed.contains($0.grant) && Self.areRelated($0.bookmark, bookmark) }
    }

    private func noteChanges() throws(GrantError) {
        // Entries may have been dropped before they were read here.
        if !given.isEmpty, try store.firstLogNumber() > lastEntry { changed.formUnion(given.map(\.grant)) }
        let own = getpid()
        lastEntry = try store.readLog(after: lastEntry, waits: false) { entry in
            // The daemon records the end of the time. A person who made that earlier has an entry of his own.
            if entry.event.changesRights, entry.event != .expired, entry.actor.pid != own, let grant = entry.grant {
                changed.insert(grant)
            }
        }
    }

    private static func areRelated(_ one: Bookmark, _ other: Bookmark) -> Bool {
        areSame(one, other) || MountTable.path(one.path, isAtOrBelow: other.path) || MountTable.path(other.path, isAtOrBelow: one.path)
    }

    // MARK: directories in one another

    // A program could rename a directory by way of a grant of a directory above it that is for writing. The rules of a grant of its
    // own, which are those of its place, would not follow, also not on a filesystem that is mounted below. So such grants are not made.

    /// Returns the innermost grant through which this access to a directory is granted already, and the directory's place in it.
    func containing(_ proposal: GrantAdministrator.Proposal, _ access: Access) throws(GrantError) -> (shown: Shown, below: [UInt8])? {
        let path = proposal.bookmark.path
        let above = try all().filter {
            Self.contains($0.grant.bookmark, proposal.bookmark) && $0.grant.bookmark.filesystem == proposal.bookmark.filesystem
                && ($0.grant.access == .readWrite || access == .readOnly)
        }
        guard var shown = above.max(by: { $0.directory.count < $1.directory.count }) else { return nil }
        let below = Array(path.dropFirst(shown.directory.count).drop { $0 == 0x2F })
        (shown.place, shown.directory) = (CanonicalPath.join(shown.place, below), path)
        return (shown, below)
    }

    private static func contains(_ outer: Bookmark, _ inner: Bookmark) -> Bool {
        outer.path != inner.path && MountTable.path(inner.path, isAtOrBelow: outer.path)
    }

    /// Throws `.alreadyExists` if a directory in this one has a grant and this one would be granted for writing, or the other way round.
    ///
    /// If there are rules, grants of other sessions count as well, and those of `grantfs run`.
    private func requireApart(_ bookmark: Bookmark, _ access: Access) throws(GrantError) {
        let now = Instant(nanoseconds: Clock.realtime)
        let others = try store.grants().filter { grant in
            grant.state(at: now) == .active
                && (grant.view == mounted?.view
                    || (TemporaryMount.isLabel(grant.view.description) && !(rules.isEmpty && grant.rules.isEmpty)))
        }
        for grant in others {
            let isAbove = Self.contains(grant.bookmark, bookmark) && grant.access == .readWrite
            guard isAbove || (access == .readWrite && Self.contains(bookmark, grant.bookmark)) else { continue }
            let isOwn = grant.view == mounted?.view
            throw GrantError(
                .alreadyExists, "“\(VisibleText.of(bookmark.path))” is not granted",
                cause: "“\(VisibleText.of(grant.bookmark.path))”, which \(isAbove ? "contains it" : "lies in it"), is granted"
                    + (isOwn ? "" : " in another session"),
                advice: isOwn ? "release that one first" : "end that session")
        }
    }

    /// Takes the lock of all sessions of this store. So two of them do not make such grants at once.
    private static func lock(_ store: GrantStore) throws(GrantError) -> FileLock {
        let end = Clock.deadline(seconds: 10)
        while true {
            do throws(Errno) {
                return try FileLock.take(store.runDirectory + "/mcp.lock", create: true)
            } catch {
                guard error.rawValue == EWOULDBLOCK, Clock.monotonic < end else {
                    throw GrantError(.storeUnavailable, "no directory can be granted", cause: "\(store.runDirectory)/mcp.lock: \(error)")
                }
            }
            ThreadSleep.milliseconds(20)
        }
    }

    static func areSame(_ one: Bookmark, _ other: Bookmark) -> Bool {
        one.identity == other.identity && one.filesystem == other.filesystem
    }

    /// Grants a proposal in the view, and remembers that the program got it.
    ///
    /// - Parameters:
    ///   - rules: Those of its place, and the program's own.
    ///   - expires: When its time is over. An existing grant ends no later than before.
    ///   - isDecided: Whether a person has decided on this request. What was taken back of this directory, and in it, is then forgotten.
    func grant(
        _ proposal: GrantAdministrator.Proposal, _ access: Access, _ rules: GrantRules, until expires: Instant?, isDecided: Bool
    ) throws(GrantError) -> Shown {
        InjectedFault.stop(at: "granting")
        let lock = try Self.lock(store)
        defer { withExtendedLifetime(lock) {} }
        try requireApart(proposal.bookmark, access)
        InjectedFault.stop(at: "apart")
        // Another session could move it until now.
        let now = try look(at: proposal.bookmark.path, for: access).bookmark
        guard now.path == proposal.bookmark.path, Self.areSame(now, proposal.bookmark) else {
            throw GrantError(.invalidDirectory, "the directory was moved while it was requested")
        }
        let shown = try record(proposal, access, rules, expires)
        try requireDecision(on: shown, isDecided)
        // A permission to read does not permit to write again.
        let isForgotten = isDecided && access == .readWrite
        if isForgotten { given.removeAll { MountTable.path($0.bookmark.path, isAtOrBelow: proposal.bookmark.path) } }
        given.append((shown.grant.id, proposal.bookmark))
        if isForgotten { changed.remove(shown.grant.id) }
        return shown
    }

    /// Removes a grant that was made or extended, if a person has taken it back since the request began.
    func requireDecision(on shown: Shown, _ isDecided: Bool) throws(GrantError) {
        guard try wasTakenBack(shown.grant.bookmark), !isDecided else { return }
        _ = try administrator.remove([shown.grant])
        throw GrantError(.permission, "a person has changed or taken it back in this session")
    }

    /// Grants a proposal in the view, which is mounted for the first one. An existing grant is
    /// widened, keeps its rules, and ends no later than before.
    private func record(
        _ proposal: GrantAdministrator.Proposal, _ access: Access, _ rules: GrantRules, _ expires: Instant?
    ) throws(GrantError) -> Shown {
        if let shown = try existing(proposal) {
            if shown.grant.access == access || shown.grant.access == .readWrite { return shown }
            // No time that was decided on is exceeded: neither that of reading, nor that of writing.
            let end = [shown.grant.expires, expires].compactMap { $0 }.min()
            return show(try administrator.setUnchanged(shown.grant, access: access, expires: .some(end)).grant)
        }
        let view = try begin()
        // One whose time is over has the name still.
        let now = Instant(nanoseconds: Clock.realtime)
        let ended = try store.grants(view: view).filter {
            $0.state(at: now) == .expired && Self.areSame($0.bookmark, proposal.bookmark)
        }
        if !ended.isEmpty { _ = try administrator.remove(ended) }
        let taken = Set(try store.grants(view: view).map(\.name))
        var (name, number) = (proposal.name, 1)
        while taken.contains(name) {
            number += 1
            name = try RunChoices.numbered(proposal.name, number)
        }
        let choice = GrantAdministrator.Choice(proposal, name: name, view: view, access: access, expires: expires, rules: rules)
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

    /// Returns the grant with this name, this path in the view, or this directory (canonical). `.notFound`.
    func named(_ word: [UInt8], directory: [UInt8]) throws(GrantError) -> Shown {
        let named = try all().first {
            $0.grant.name.bytes == word || $0.place == word || [word, directory].contains($0.grant.bookmark.path)
        }
        guard let named else {
            throw GrantError(
                .notFound, "no directory “\(String(decoding: word, as: UTF8.self))” is granted in this session",
                advice: "see list_directories")
        }
        return named
    }

    /// Whether the program has given a directory back so often that the policy alone does not grant it again: a person's revocation may
    /// come when it is just released, and has no effect then.
    func wasOftenReleased(_ bookmark: Bookmark) -> Bool { releases[bookmark.identity, default: 0] >= Self.mostReleases }
    private static let mostReleases = 8

    /// Revokes and removes a grant.
    func release(_ shown: Shown) throws(GrantError) -> Shown {
        releases[shown.grant.bookmark.identity, default: 0] += 1
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
