import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// Takes claims: coordinated access to granted files and directories. A claim is taken in every
/// live mount of the store that leads to its items. The order is that of the mounts' ids, so that
/// no two claims wait for each other across daemons.
public struct FileCoordination: Sendable {
    let administrator: GrantAdministrator

    public init(_ administrator: GrantAdministrator) { self.administrator = administrator }

    /// Waits until all accesses are granted together. It occupies no thread of a daemon meanwhile.
    ///
    /// - Parameters:
    ///   - purpose: Claims of the same purpose do not conflict. Without one, the claim conflicts
    ///     with every other claim.
    ///   - timeout: The longest wait, in seconds. 0 takes only free items. The wait has no limit if
    ///     it is nil.
    ///   - hold: How long an operation through a mandatory grant waits for this claim before it
    ///     fails with EAGAIN, in seconds. If it is nil, the operation waits as long as the claim is
    ///     held.
    ///   - progress: called on this thread while it waits.
    public func claim(
        _ accesses: [CoordinatedAccess], claimant: Claimant = .currentThread, purpose: String? = nil, timeout: Double? = nil,
        hold: Double? = nil, cancellation: CoordinationCancellation? = nil, progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(CoordinationError) -> Claim {
        let pending = try begin(
            accesses, claimant: claimant, purpose: purpose, timeout: timeout, hold: hold, cancellation: cancellation, progress: progress)
        while true {
            if let claim = try pending.advance() { return claim }
            try pending.waitForOthers()
        }
    }

    /// The same for a caller that waits without a thread of its own.
    package func begin(
        _ accesses: [CoordinatedAccess], claimant: Claimant, purpose: String?, timeout: Double?, hold: Double? = nil,
        cancellation: CoordinationCancellation?, progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(CoordinationError) -> PendingClaim {
        let deadline = timeout.map { Clock.deadline(seconds: $0) }
        let records = try mounts()
        var items: [ItemRequest] = []
        for access in accesses {
            items.append(
                ItemRequest(
                    path: try place(of: access.path, follows: access.followsLink, records), isWriting: access.kind == .writing,
                    intent: access.intent.wire, savesFirst: access.savesFirst,
                    newPath: try access.newPath.map { path throws(CoordinationError) in try place(of: path, follows: false, records) }))
        }
        guard !items.isEmpty else { throw .failed("the claim names no item") }
        let request = ClaimRequest(
            number: ClaimPart.number, id: .random(), claimant: claimant.id, purpose: purpose.map { Array($0.utf8) }, items: items,
            holdMilliseconds: UInt32(min(max((hold ?? 0) * 1000, 0), 4e9)))
        return PendingClaim(
            ClaimWait(
                request, in: records, administrator.store.runDirectory, until: deadline, cancellation: cancellation, progress: progress))
    }

    /// Returns the live mounts of the store, in the order in which every claimant asks them.
    func mounts() throws(CoordinationError) -> [MountRecord] {
        let records: [MountRecord]
        do throws(GrantError) {
            records = try administrator.store.servedMounts()
        } catch {
            throw .failed(error.description)
        }
        if records.isEmpty { throw .noMount }
        return records.sorted { ($0.id.high, $0.id.low) < ($1.id.high, $1.id.low) }
    }

    /// Maps a path on the host or in a mount to the path on the host.
    func place(of path: [UInt8], follows: Bool, _ records: [MountRecord]) throws(CoordinationError) -> [UInt8] {
        // Works on the text first: a path in a mount is not looked up through that mount.
        let plain = CanonicalPath.plain(path)
        let translated = try translate(plain, records) ?? plain
        let canonical = follows ? whole(translated) : above(translated)
        return try translate(canonical, records) ?? canonical
    }

    private func whole(_ path: [UInt8]) -> [UInt8] {
        if case .canonical(let path) = administrator.probe.ask([.canonical(path)])[0] { return path }
        return path
    }

    /// Resolves links in the parent directories, but not the last name.
    private func above(_ path: [UInt8]) -> [UInt8] {
        guard let slash = path.lastIndex(of: 0x2F), path.count > 1 else { return path }
        return CanonicalPath.join(whole(slash == 0 ? [0x2F] : Array(path[..<slash])), Array(path[(slash + 1)...]))
    }

    /// Maps a path in a mount of the store to the path on the host, or nil if it is in none.
    private func translate(_ path: [UInt8], _ records: [MountRecord]) throws(CoordinationError) -> [UInt8]? {
        guard let record = records.last(where: { MountTable.path(path, isAtOrBelow: $0.mountpoint) }) else { return nil }
        let names = path.dropFirst(record.mountpoint.count).split(separator: 0x2F).map { Array($0) }
        let grants: [Grant]
        do throws(GrantError) {
            grants = try administrator.store.grants(record.shown)
        } catch {
            throw .failed(error.description)
        }
        // The root of a view belongs to no grant.
        guard case .grant(let grant, let below) = record.shown.find(names, among: grants) else { throw .outside(path) }
        return below.reduce(place(of: grant, record)) { CanonicalPath.join($0, $1) }
    }

    /// Returns the path of a grant's directory: from a mount that holds it open, or as recorded.
    private func place(of grant: Grant, _ record: MountRecord) -> [UInt8] {
        let answer = Daemons.ask(
            record, .locate(grants: [grant.id]), in: administrator.store.runDirectory, deadline: Clock.deadline(seconds: 2))
        if case .success(.located(let places)) = answer, let place = places.first { return place.path }
        return grant.bookmark.path
    }

    /// Returns the path of a grant's directory, to be claimed.
    public func path(of grant: Grant) throws(CoordinationError) -> [UInt8] {
        guard let record = try mounts().first(where: { $0.shows(grant.view) }) else { return grant.bookmark.path }
        return place(of: grant, record)
    }
}
