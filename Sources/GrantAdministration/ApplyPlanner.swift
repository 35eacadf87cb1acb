import GrantModel
import GrantStore

/// Computes the changes that make the granted state match the declared one.
public struct ApplyPlanner: Sendable {
    /// It is nil if there is no store yet: then nothing is granted.
    private let administrator: GrantAdministrator?
    /// The directory of the store, which may not exist yet.
    private let directory: String
    private let probe: DirectoryProbe

    public init(administrator: GrantAdministrator?, store directory: String, probe: DirectoryProbe = .inProcess) {
        (self.administrator, self.directory, self.probe) = (administrator, directory, probe)
    }

    /// Returns the plan for a declared state. Everything is checked here, so that errors show
    /// before the first change: `.invalidFile`, `.invalidDirectory`, `.usage`, each with the
    /// location of the declaration, and `.permission` for grants that the administrator's policy
    /// denies.
    ///
    /// A grant that was revoked or has expired stays so, unless `restores`: a file that is applied
    /// at each boot must not restore revoked access.
    public func plan(_ state: DeclaredState, restores: Bool = false) throws(GrantError) -> ApplyPlan {
        let now = GrantAdministrator.now
        let grants = try (administrator?.store.grants() ?? []).filter { state.views.contains($0.view) }
        var steps: [ApplyPlan.Step] = []
        var places: [Place: String] = [:]
        for item in state.items {
            let known = grants.filter { $0.view == item.view }
            let (name, found) = try look(at: item, known)
            let place = Place(view: item.view, name: name)
            if let other = places.updateValue(item.place, forKey: place) {
                throw GrantError(.invalidFile, "\(item.place): “\(name)” is in the view “\(item.view)” already", cause: "by \(other)")
            }
            steps += try self.steps(for: item, named: name, known.first { $0.name == name }, found, restores, now)
        }
        // An offer is not declared: it gives nothing by itself.
        for grant in grants
        where places[Place(view: grant.view, name: grant.name)] == nil && grant.state(at: now) == .active && !grant.isOffered {
            steps.append(.withdraw(grant))
        }
        try requireAllowed(steps)
        return ApplyPlan(
            steps: steps.sorted {
                ($0.place.view.description, $0.place.name.description) < ($1.place.view.description, $1.place.name.description)
            })
    }

    private func requireAllowed(_ steps: [ApplyPlan.Step]) throws(GrantError) {
        let actor = administrator?.actor ?? .current()
        guard let judge = try PolicyJudge.current(for: actor.uid, probe: probe) else { return }
        for step in steps {
            switch step {
            case .create(let choice), .replace(_, let choice):
                try judge.require(choice.proposal.bookmark.path, view: choice.view, access: choice.access, by: actor)
            case .restore(let grant):
                let path = administrator?.describe([grant])[0].path ?? grant.bookmark.path
                try judge.require(path, view: grant.view, access: grant.access, by: actor)
            case .change(let grant, let change):
                guard let administrator else { continue }
                let rules = change.rules.map { RuleChange($0) }
                guard try administrator.widens(grant, access: change.access, expires: change.expires, rules: rules) else { continue }
                try judge.require(
                    administrator.describe([grant])[0].path, view: grant.view, access: change.access ?? grant.access, by: actor)
            case .withdraw, .keep, .leave: break
            }
        }
    }

    private struct Place: Hashable {
        let view: ViewName
        let name: GrantName
    }

    /// Returns the item's name and its proposal, or the reason why it cannot be granted. Throws if
    /// the item has no name now.
    private func look(
        at item: DeclaredState.Item, _ known: [Grant]
    ) throws(GrantError) -> (GrantName, Result<GrantAdministrator.Proposal, GrantError>) {
        let found: Result<GrantAdministrator.Proposal, GrantError>
        do throws(GrantError) {
            let proposal = try GrantAdministrator.propose(
                directory: item.path, name: item.name, store: directory, document: item.form, probe: probe)
            if item.form == .directory, proposal.bookmark.document == nil {
                throw GrantError(.invalidFile, "asDirectory is for files", cause: "it is a directory")
            }
            try administrator?.check(proposal)
            found = .success(proposal)
        } catch {
            found = .failure(GrantError(error.code, "\(item.place): \(error.message)", cause: error.cause, advice: error.advice))
        }
        if case .success(let proposal) = found, !item.rules.isEmpty, proposal.bookmark.document != nil {
            throw ApplyPlanner.rulesOfFile(item)
        }
        if let name = item.name { return (name, found) }
        if case .success(let proposal) = found { return (proposal.name, found) }
        // A directory that is missing now has the last name of its path, if it was granted under that.
        if let name = try? GrantName(entry: CanonicalPath.lastName(of: item.path)), known.contains(where: { $0.name == name }) {
            return (name, found)
        }
        return (try found.get().name, found)
    }

    private func steps(
        for item: DeclaredState.Item, named name: GrantName, _ existing: Grant?, _ found: Result<GrantAdministrator.Proposal, GrantError>,
        _ restores: Bool,
        _ now: Instant
    ) throws(GrantError) -> [ApplyPlan.Step] {
        let isOver = item.expires.map { $0 <= now } ?? false
        guard let existing else {
            if isOver { return [.leave(view: item.view, name: name, reason: "its time is over")] }
            return [.create(choice(item, name, try found.get()))]
        }
        switch found {
        case .success(let proposal):
            let (old, new) = (existing.bookmark, proposal.bookmark)
            // A document that was saved is another file and still the same document.
            let isSaved = old.document != nil && old.path == new.path && isAt(existing, new.path)
            let isOther = old.filesystem != new.filesystem || old.identity != new.identity
            if (isOther && !isSaved) || old.document?.form != new.document?.form {
                if existing.state(at: now) != .active, !restores { return [left(existing, now)] }
                return [.replace(existing, choice(item, name, proposal))]
            }
        case .failure(let error):
            // Its volume may be absent, or it was moved: the grant follows it, and the file may have the old path.
            guard existing.bookmark.path == CanonicalPath.plain(item.path) || isElsewhere(existing) else { throw error }
        }
        var change = ApplyPlan.Change()
        if existing.access != item.access || existing.isOffered { change.access = item.access }
        if existing.coordination != item.coordination { change.coordination = item.coordination }
        if existing.rules != item.rules {
            if existing.bookmark.document != nil { throw ApplyPlanner.rulesOfFile(item) }
            change.rules = item.rules
        }
        if existing.expires != item.expires { change.expires = .some(item.expires) }
        var steps: [ApplyPlan.Step] = []
        if isOver, change.expires != nil {
            change.expires = nil
            steps.append(.leave(view: item.view, name: name, reason: "the declared time is over, so its expiry is unchanged"))
        }
        if existing.state(at: now) != .active { steps.append(restores && !isOver ? .restore(existing) : left(existing, now)) }
        if !change.isEmpty { steps.append(.change(existing, change)) }
        return steps.isEmpty ? [.keep(existing)] : steps
    }

    private static func rulesOfFile(_ item: DeclaredState.Item) -> GrantError {
        GrantError(.invalidFile, "\(item.place): hide, protect and only are for directories", cause: "it is a file")
    }

    private func left(_ grant: Grant, _ now: Instant) -> ApplyPlan.Step {
        let state = grant.state(at: now)
        return .leave(
            view: grant.view, name: grant.name,
            reason: (state == .expired ? "it has expired" : "it is \(state.rawValue)") + ", and stays so (--restore makes it active again)")
    }

    private func choice(_ item: DeclaredState.Item, _ name: GrantName, _ proposal: GrantAdministrator.Proposal) -> GrantAdministrator.Choice
    {
        GrantAdministrator.Choice(
            proposal, name: name, view: item.view, access: item.access, expires: item.expires, isTagged: false,
            coordination: item.coordination, rules: item.rules)
    }

    private func isAt(_ grant: Grant, _ path: [UInt8]) -> Bool {
        administrator.map { administrator in
            let described = administrator.describe([grant])[0]
            return described.finding.isUsable && described.path == path
        } ?? false
    }

    private func isElsewhere(_ grant: Grant) -> Bool { administrator.map { $0.describe([grant])[0].finding != .ok } ?? false }
}
