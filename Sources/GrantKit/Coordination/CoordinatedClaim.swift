import GrantCoordinator
import GrantAdministration
import GrantModel
import GrantSystem

/// A claim in this process and in the daemon of every mount that leads to the items.
///
/// Locking: its own, for a moment.
final class CoordinatedClaim: Sendable {
    /// The parameters of a wait.
    struct Wait: Sendable {
        var work: CoordinatedWork
        var purpose: String?
        /// In seconds. The wait has no limit if it is nil.
        var timeout: Double?
        var cancellation: Cancellation?
    }

    /// The items' paths, in the order and the form in which they were given: in a mount if they were named in a mount. An item that was
    /// moved meanwhile, or is a link, has its present path.
    let paths: [[UInt8]]
    private let environment: GrantEnvironment
    private let parts: Lock<(local: ClaimID?, daemons: Claim?, relinquished: [RelinquishedPresenter])>
    /// The presenters of which this is the own work.
    private let own: [RegisteredPresenter]
    private let work: ClaimantID

    /// Waits until everything is granted together: first in this process, then in the daemons. An item outside of every grant, and any
    /// item while nothing is mounted or the store cannot be read, is claimed in this process only.
    convenience init(_ accesses: [CoordinatedAccess], _ wait: Wait, in environment: GrantEnvironment) throws(CoordinationError) {
        if wait.cancellation?.isCancelled == true { throw .cancelled }
        let deadline = wait.timeout.map { Clock.deadline(seconds: $0) }
        let local = try LocalClaims.process.take(
            try CoordinatedClaim.items(accesses), for: wait.work, purpose: wait.purpose, until: deadline, cancellation: wait.cancellation)
        do throws(CoordinationError) {
            let claimed = try CoordinatedClaim.claimInDaemons(accesses, wait, deadline, environment)
            try self.init(accesses, wait, local: local, claimed, in: environment)
        } catch {
            LocalClaims.process.end(local)
            throw error
        }
    }

    /// The same without a thread that waits for other claims. `answer` is called once, on a thread that may wait.
    static func take(
        _ accesses: [CoordinatedAccess], _ wait: Wait, in environment: GrantEnvironment,
        _ answer: @escaping @Sendable (Result<CoordinatedClaim, CoordinationError>) -> Void
    ) {
        if wait.cancellation?.isCancelled == true { return answer(.failure(.cancelled)) }
        let deadline = wait.timeout.map { Clock.deadline(seconds: $0) }
        run(answer) { () throws(CoordinationError) in
            LocalClaims.process.request(
                try items(accesses), for: wait.work, purpose: wait.purpose, until: deadline, cancellation: wait.cancellation
            ) { local in
                switch local {
                case .failure(let error): answer(.failure(error))
                case .success(let id):
                    let finish: @Sendable (Result<CoordinatedClaim, CoordinationError>) -> Void = { result in
                        if case .failure = result { LocalClaims.process.end(id) }
                        answer(result)
                    }
                    run(finish) { () throws(CoordinationError) in
                        claimInDaemons(accesses, wait, deadline, environment, Array(accesses.indices)) { claimed in
                            finish(
                                Result { () throws(CoordinationError) in
                                    try CoordinatedClaim(accesses, wait, local: id, try claimed.get(), in: environment)
                                })
                        }
                    }
                }
            }
        }
    }

    /// Runs `body` on a thread that may wait. Its error is the answer, or that there is no thread.
    private static func run<Value>(
        _ answer: @escaping @Sendable (Result<Value, CoordinationError>) -> Void,
        _ body: @escaping @Sendable () throws(CoordinationError) -> Void
    ) {
        do throws(Errno) {
            try WaitingThreads.process.run {
                do throws(CoordinationError) {
                    try body()
                } catch {
                    answer(.failure(error))
                }
            }
        } catch {
            answer(.failure(.failed(error.description)))
        }
    }

    private static func items(_ accesses: [CoordinatedAccess]) throws(CoordinationError) -> [ItemAccess] {
        var items: [ItemAccess] = []
        for access in accesses { items += try access.items() }
        return items
    }

    /// A claim in the daemons, for the accesses with these indices. It is nil if there are none.
    private typealias Claimed = (claim: Claim?, inside: [Int])

    /// `local` is the claim in this process.
    private init(
        _ accesses: [CoordinatedAccess], _ wait: Wait, local: ClaimID, _ claimed: Claimed, in environment: GrantEnvironment
    ) throws(CoordinationError) {
        var paths = accesses.map { $0.followsLink ? CanonicalPath.resolveWhatExists($0.path) : $0.path }
        var places = paths
        if let claim = claimed.claim {
            for (index, path) in zip(claimed.inside, claim.paths) {
                places[index] = path
                paths[index] = try accesses[index].inGivenForm(path, environment)
            }
        }
        self.paths = paths
        self.environment = environment
        let store = claimed.claim == nil ? nil : try? environment.administrator().store.directory
        let relinquished = PresenterRegistry.process.askToRelinquish(
            for: accesses, at: places, purpose: wait.purpose, askedBy: store, timeout: environment.timeouts.presenter)
        parts = Lock((local, claimed.claim, relinquished))
        own = accesses.contains { $0.kind == .writing } ? PresenterRegistry.process.presenters(of: wait.purpose) : []
        work = wait.work.id
        for presenter in own { presenter.beginWriting() }
    }

    deinit { end() }

    /// Claims those accesses that are in mounted grants, and returns which ones they are.
    private static func claimInDaemons(
        _ accesses: [CoordinatedAccess], _ wait: Wait, _ deadline: Int64?, _ environment: GrantEnvironment
    ) throws(CoordinationError) -> Claimed {
        guard let administrator = try? environment.administrator() else { return (nil, []) }
        var inside = Array(accesses.indices)
        while !inside.isEmpty {
            do throws(CoordinationError) {
                let claim = try FileCoordination(administrator).claim(
                    inside.map { accesses[$0] }, claimant: wait.work.claimant, purpose: wait.purpose, timeout: left(until: deadline),
                    cancellation: wait.cancellation?.daemons)
                return (claim, inside)
            } catch {
                inside = try rest(of: inside, after: error, accesses, administrator)
            }
        }
        return (nil, [])
    }

    /// The same without a thread that waits for other claims. `answer` is called on a thread that may wait.
    private static func claimInDaemons(
        _ accesses: [CoordinatedAccess], _ wait: Wait, _ deadline: Int64?, _ environment: GrantEnvironment, _ inside: [Int],
        _ answer: @escaping @Sendable (Result<Claimed, CoordinationError>) -> Void
    ) {
        guard !inside.isEmpty, let administrator = try? environment.administrator() else { return answer(.success((nil, []))) }
        let goOn: @Sendable (Result<Claim, CoordinationError>) -> Void = { result in
            do throws(CoordinationError) {
                answer(.success((try result.get(), inside)))
            } catch {
                do throws(CoordinationError) {
                    let rest = try rest(of: inside, after: error, accesses, administrator)
                    claimInDaemons(accesses, wait, deadline, environment, rest, answer)
                } catch {
                    answer(.failure(error))
                }
            }
        }
        let ask: @Sendable () throws(CoordinationError) -> (pending: PendingClaim, claim: Claim?) = { () throws(CoordinationError) in
            if wait.cancellation?.isCancelled == true { throw .cancelled }
            let pending = try FileCoordination(administrator).begin(
                inside.map { accesses[$0] }, claimant: wait.work.claimant, purpose: wait.purpose, timeout: left(until: deadline),
                cancellation: wait.cancellation?.daemons)
            return (pending, try pending.advance())
        }
        AskingTurns.process.take(ask) { result in
            switch result {
            case .failure(let error): goOn(.failure(error))
            case .success((_, let claim?)): goOn(.success(claim))
            case .success((let pending, nil)): follow(pending, wait.cancellation, goOn)
            }
        }
    }

    private static func follow(
        _ pending: PendingClaim, _ cancellation: Cancellation?, _ answer: @escaping @Sendable (Result<Claim, CoordinationError>) -> Void
    ) {
        do throws(CoordinationError) {
            try DaemonWaits.process.wait(for: pending, cancellation) { isReady in
                run(answer) { () throws(CoordinationError) in
                    if cancellation?.isCancelled == true { throw .cancelled }
                    try pending.resume(isReady: isReady)
                    if let claim = try pending.advance() {
                        answer(.success(claim))
                    } else {
                        follow(pending, cancellation, answer)
                    }
                }
            }
        } catch {
            answer(.failure(error))
        }
    }

    private static func left(until deadline: Int64?) -> Double? { deadline.map { max(0, Double($0 - Clock.monotonic) / 1e9) } }

    /// Returns the accesses to claim next, after the daemons refused all of them together.
    private static func rest(
        of inside: [Int], after error: CoordinationError, _ accesses: [CoordinatedAccess], _ administrator: GrantAdministrator
    ) throws(CoordinationError) -> [Int] {
        switch error {
        case .noMount: return []
        case .outside:
            let granted = inside.filter { accesses[$0].isGranted(administrator) }
            // The daemons know better than the store what they show: then none of it is theirs.
            return granted.count < inside.count ? granted : []
        default: throw error
        }
    }

    /// Releases the claim. When it returns, others can have it.
    func end() {
        let (local, daemons, relinquished) = parts.withLock { parts in
            defer { parts = (nil, nil, []) }
            return parts
        }
        guard let local else { return }
        // Presenters added in the accessor receive every event from here on.
        PresenterRegistry.process.settle(addedIn: work, within: environment.timeouts.presenter)
        for presenter in own { presenter.endWriting() }
        daemons?.end()
        LocalClaims.process.end(local)
        for presenter in relinquished { presenter.over() }
    }

    /// Returns why the claim is lost: a revocation, or the end of a daemon. nil while it is held.
    func lost() -> CoordinationError? { parts.withLock { $0.daemons }?.lost() }

    /// Tells presenters and waiting claimants that a claimed item was moved.
    func tellMoved(_ path: [UInt8], to newPath: [UInt8]) {
        let (_, daemons, relinquished) = parts.withLock { $0 }
        if daemons == nil, relinquished.isEmpty { return }
        let (old, new) = (PathForm(of: path, in: environment).host(path), PathForm(of: newPath, in: environment).host(newPath))
        daemons?.tellMoved(old, to: new)
        for stepped in relinquished { stepped.presenter.moved(old, to: new) }
    }
}

extension CoordinatedAccess {
    /// The accesses for this process's table of claims.
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

    /// Whether a grant of the store leads there. A missing item belongs to its directory.
    fileprivate func isGranted(_ administrator: GrantAdministrator) -> Bool {
        var directory = CanonicalPath.plain(path)
        while true {
            let existing = CanonicalPath.resolveWhatExists(directory)
            if (try? GrantedPlace(existing, administrator: administrator)) != nil { return true }
            if (try? BookmarkMaker.look(existing)) != nil || directory.count <= 1 { return false }
            directory = CanonicalPath.parent(of: directory)
        }
    }

    /// Maps a path on the host back to the form in which the item was given: in the mount, unless the grant's claims are mandatory.
    fileprivate func inGivenForm(_ host: [UInt8], _ environment: GrantEnvironment) throws(CoordinationError) -> [UInt8] {
        guard let table = try? GrantedPlace.table() else { return host }
        let directory = CanonicalPath.resolveWhatExists(CanonicalPath.parent(of: path))
        let named = CanonicalPath.join(directory, CanonicalPath.lastName(of: path))
        guard let place = ViewPlace(named, in: table) else { return host }
        // A process that waits in the kernel for a mandatory claim may hold a lock there that the claimant needs, so the claimant uses
        // the host's path.
        if let administrator = try? environment.administrator(),
            (try? GrantedPlace.grant(of: place, named, administrator, table))?.coordination == .mandatory,
            (try? BookmarkMaker.look(CanonicalPath.parent(of: host))) != nil
        {
            return host
        }
        // The item nearly always stays where it was. Then the path ends as it was given.
        let below = place.below.isEmpty ? [] : [UInt8(ascii: "/")] + place.below
        if !below.isEmpty && host.suffix(below.count).elementsEqual(below) && !followsLink { return named }
        guard let administrator = try? environment.administrator(),
            let seen = place.directory, let granted = try? GrantedPlace(seen, administrator: administrator),
            let inside = FilePath.below(granted.directory, host)
        else { return named }
        return FilePath.join(seen, inside)
    }
}
