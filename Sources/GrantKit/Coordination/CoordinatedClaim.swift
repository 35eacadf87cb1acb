import GrantCoordinator
import GrantAdministration
import GrantModel
import GrantSystem

/// Claims on what somebody coordinates: in this process, and in the daemons of every mount that leads there.
///
/// Locking: its own, for a moment.
final class CoordinatedClaim: Sendable {
    /// What a wait is for and how long it may be.
    struct Wait: Sendable {
        var claimant: Claimant
        var purpose: String?
        /// In seconds; nil waits for ever.
        var timeout: Double?
        var cancellation: Cancellation?
    }

    /// Where what was claimed is, in the order and in the terms in which it was asked for: below a mount what was named below a mount. What
    /// was moved, or is a link, while it was waited for is at another place now.
    let paths: [[UInt8]]
    private let environment: GrantEnvironment
    private let parts: Lock<(local: ClaimID?, daemons: Claim?, aside: [SteppedAside])>

    /// Waits until everything is granted together: in this process first, then in the daemons. An item outside of every grant, and every item while
    /// nothing is mounted or the store cannot be read, is claimed in this process alone.
    init(_ accesses: [CoordinatedAccess], _ wait: Wait, in environment: GrantEnvironment) throws(CoordinationError) {
        if wait.cancellation?.isCancelled == true { throw .cancelled }
        let deadline = wait.timeout.map { Clock.deadline(seconds: $0) }
        var items: [ItemAccess] = []
        for access in accesses { items += try access.items() }
        let local = try LocalClaims.process.take(
            items, claimant: wait.claimant, purpose: wait.purpose, until: deadline, cancellation: wait.cancellation)
        do throws(CoordinationError) {
            let (claim, inside) = try CoordinatedClaim.claimInDaemons(accesses, wait, deadline, environment)
            var paths = accesses.map { $0.followsLink ? CanonicalPath.resolveWhatExists($0.path) : $0.path }
            var places = paths
            if let claim {
                for (index, path) in zip(inside, claim.paths) {
                    places[index] = path
                    paths[index] = try accesses[index].inItsOwnTerms(path, environment)
                }
            }
            self.paths = paths
            self.environment = environment
            let store = claim == nil ? nil : try? environment.administrator().store.directory
            let aside = PresenterRegistry.process.makeWay(
                for: accesses, at: places, purpose: wait.purpose, askedBy: store, patience: environment.patience.presenter)
            parts = Lock((local, claim, aside))
        } catch {
            LocalClaims.process.end(local)
            throw error
        }
    }

    deinit { end() }

    /// The claim of those accesses that lie in grants which are mounted, and which ones those are.
    private static func claimInDaemons(
        _ accesses: [CoordinatedAccess], _ wait: Wait, _ deadline: Int64?, _ environment: GrantEnvironment
    ) throws(CoordinationError) -> (Claim?, inside: [Int]) {
        guard let administrator = try? environment.administrator() else { return (nil, []) }
        let daemons = FileCoordination(administrator)
        var inside = Array(accesses.indices)
        while !inside.isEmpty {
            let left = deadline.map { max(0, Double($0 - Clock.monotonic) / 1e9) }
            do throws(CoordinationError) {
                let claim = try daemons.claim(
                    inside.map { accesses[$0] }, claimant: wait.claimant, purpose: wait.purpose, timeout: left,
                    cancellation: wait.cancellation?.daemons)
                return (claim, inside)
            } catch {
                switch error {
                case .noMount: return (nil, [])
                case .outside:
                    let granted = inside.filter { accesses[$0].isGranted(administrator) }
                    // The daemons know better than the store what they show; then nothing of it is theirs.
                    inside = granted.count < inside.count ? granted : []
                default: throw error
                }
            }
        }
        return (nil, [])
    }

    /// Gives everything back. When it returns, others can have it.
    func end() {
        let (local, daemons, aside) = parts.withLock { parts in
            defer { parts = (nil, nil, []) }
            return parts
        }
        daemons?.end()
        if let local { LocalClaims.process.end(local) }
        for presenter in aside { presenter.over() }
    }

    /// Why it is no longer in force: a revocation, or the end of a daemon. nil while it is.
    func lost() -> CoordinationError? { parts.withLock { $0.daemons }?.lost() }

    /// Tells presenters, and those who wait, that a claimed item has moved.
    func tellMoved(_ path: [UInt8], to newPath: [UInt8]) {
        let (_, daemons, aside) = parts.withLock { $0 }
        if daemons == nil, aside.isEmpty { return }
        let (old, new) = (PathTerms(of: path, in: environment).host(path), PathTerms(of: newPath, in: environment).host(newPath))
        daemons?.tellMoved(old, to: new)
        for stepped in aside { stepped.presenter.moved(old, to: new) }
    }
}

extension CoordinatedAccess {
    /// What it means for the table of this process.
    fileprivate func items() throws(CoordinationError) -> [ItemAccess] {
        do throws(GrantError) {
            var items = [ItemAccess(try ClaimedItem(path: path, followsLink: followsLink), use)]
            if let newPath { items.append(ItemAccess(try ClaimedItem(path: newPath), .displace)) }
            return items
        } catch {
            throw error.code == .permission ? .revoked(path) : .failed(error.description)
        }
    }

    private var use: ItemUse {
        switch (kind, intent) {
        case (.reading, .metadata): .readMetadata
        case (.reading, _): .readContent
        case (.writing, .metadata): .writeMetadata
        case (.writing, .deleting), (.writing, .moving), (.writing, .replacing): .displace
        case (.writing, _): .writeContent
        }
    }

    /// Whether a grant of the store leads there. What does not exist yet lies where its directory does.
    fileprivate func isGranted(_ administrator: GrantAdministrator) -> Bool {
        var directory = CanonicalPath.plain(path)
        while true {
            let existing = CanonicalPath.resolveWhatExists(directory)
            if (try? GrantedPlace(existing, administrator: administrator)) != nil { return true }
            if (try? BookmarkMaker.look(existing)) != nil || directory.count <= 1 { return false }
            directory = CanonicalPath.parent(of: directory)
        }
    }

    /// Where a path of the host is for whoever named this one: below the mount, if that was below a mount and the grant's claims bind claimants alone.
    fileprivate func inItsOwnTerms(_ host: [UInt8], _ environment: GrantEnvironment) throws(CoordinationError) -> [UInt8] {
        guard let table = try? GrantedPlace.table() else { return host }
        let directory = CanonicalPath.resolveWhatExists(CanonicalPath.parent(of: path))
        let named = CanonicalPath.join(directory, CanonicalPath.lastName(of: path))
        guard let place = ViewPlace(named, in: table) else { return host }
        // Who waits in the kernel for a claim that binds everybody may hold a lock there that the claimant needs: it goes by the host.
        if let administrator = try? environment.administrator(),
            (try? GrantedPlace.grant(of: place, named, administrator, table))?.coordination == .mandatory,
            (try? BookmarkMaker.look(CanonicalPath.parent(of: host))) != nil
        {
            return host
        }
        // Nearly always it has not moved: then it ends as it was named.
        let below = place.below.isEmpty ? [] : [UInt8(ascii: "/")] + place.below
        if !below.isEmpty && host.suffix(below.count).elementsEqual(below) && !followsLink { return named }
        guard let administrator = try? environment.administrator(),
            let seen = place.directory, let granted = try? GrantedPlace(seen, administrator: administrator),
            let inside = FilePath.below(granted.directory, host)
        else { return named }
        return FilePath.join(seen, inside)
    }
}
