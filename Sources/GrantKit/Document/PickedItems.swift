import Foundation
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// Grants what a person has picked: all of it, or nothing.
///
/// An active grant with the same access and expiry is kept. An identical grant that is revoked or
/// has expired is restored. Anything else gets a new grant, under a name that is free.
struct PickedItems {
    private let request: PickRequest
    private let environment: GrantEnvironment
    private let administrator: GrantAdministrator
    private let expiry: Instant?

    /// How often another process may take a name between the choice and the grant.
    private static let maxAttempts = 5

    private enum Way {
        case kept(Grant)
        case restored(Grant)
        case new(GrantAdministrator.Choice)
    }

    init(_ request: PickRequest) throws(GrantError) {
        (self.request, environment) = (request, .current)
        administrator = try environment.administrator(create: true)
        expiry = request.expires.map { Instant(nanoseconds: Int64($0.timeIntervalSince1970 * 1e9)) }
    }

    /// Returns the grants in the order of the URLs, each once. If an item cannot be granted, none
    /// is. The error names the item, or counts several and lists the causes.
    func grant(_ urls: [URL]) throws(GrantError) -> [GrantedDirectory] {
        let proposals = try propose(urls)
        var attempt = 1
        while true {
            var chosen: [Way] = []
            do throws(GrantError) {
                chosen = try ways(proposals)
                return try carryOut(chosen)
            } catch {
                if let failure = takeBack(chosen, unmade: error.code == .alreadyExists) { throw error.saying(failure) }
                if error.code != .alreadyExists || attempt == Self.maxAttempts { throw error.saying("nothing was granted") }
                attempt += 1
            }
        }
    }

    private func propose(_ urls: [URL]) throws(GrantError) -> [GrantAdministrator.Proposal] {
        var proposals: [GrantAdministrator.Proposal] = []
        var errors: [GrantError] = []
        for url in urls {
            do throws(GrantError) {
                let proposal = try GrantAdministrator.propose(
                    directory: try place(url), name: nil, store: administrator.store.directory,
                    document: request.picksFiles ? .directory : nil, probe: administrator.probe)
                if !proposals.contains(where: { isSame($0.bookmark, proposal.bookmark) }) { proposals.append(proposal) }
            } catch {
                errors.append(error)
            }
        }
        guard let first = errors.first else { return proposals }
        if errors.count == 1 { throw first.saying("nothing was granted") }
        throw GrantError(
            first.code, "\(errors.count) items cannot be granted",
            cause: errors.map { $0.message + ($0.cause.map { ": \($0)" } ?? "") }.joined(separator: "; "), advice: "nothing was granted")
    }

    /// Returns the path on the host of an item picked in a mount.
    private func place(_ url: URL) throws(GrantError) -> [UInt8] {
        let path = try FilePath.bytes(url)
        guard let canonical = try? CanonicalPath.resolve(path), ViewPlace(canonical, in: try GrantedPlace.table()) != nil,
            let place = try? GrantedPlace(canonical, administrator: administrator)
        else { return path }
        return place.source
    }

    private func isSame(_ one: Bookmark, _ other: Bookmark) -> Bool {
        one.filesystem == other.filesystem && one.identity == other.identity && one.document?.form == other.document?.form
    }

    private func ways(_ proposals: [GrantAdministrator.Proposal]) throws(GrantError) -> [Way] {
        let grants = try administrator.store.grants(view: request.view)
        let now = Instant(nanoseconds: Clock.realtime)
        var names = Set(grants.map(\.name))
        var ways: [Way] = []
        for proposal in proposals {
            let equal = grants.filter { isSame($0.bookmark, proposal.bookmark) && $0.access == request.access }
            // A restored grant has no expiry that has passed. Those of a fleet are restored by the fleet alone.
            let lost = equal.filter { $0.state(at: now) != .active && $0.fleetActivation == nil }
            if let kept = equal.first(where: { $0.state(at: now) == .active && $0.expires == expiry }) {
                ways.append(.kept(kept))
            } else if let restored = lost.first(where: { ($0.expires.flatMap { $0 <= now ? nil : $0 }) == expiry }) {
                ways.append(.restored(restored))
            } else {
                let name = try free(proposal.name, among: names)
                names.insert(name)
                ways.append(
                    .new(
                        GrantAdministrator.Choice(
                            proposal, name: name, view: request.view, access: request.access, expires: expiry)))
            }
        }
        return ways
    }

    /// Returns the name, or the first of `NAME 2`, `NAME 3` and so on that no grant has.
    private func free(_ name: GrantName, among names: Set<GrantName>) throws(GrantError) -> GrantName {
        if !names.contains(name) { return name }
        for number in 2...(names.count + 2) {
            let suffix = Array(" \(number)".utf8)
            var stem = name.bytes[...]
            // A name has 255 bytes at most, and ends with a whole character.
            while stem.count + suffix.count > 255 || String(validating: stem, as: UTF8.self) == nil, !stem.isEmpty { stem.removeLast() }
            if let candidate = try? GrantName(entry: stem + suffix), !names.contains(candidate) { return candidate }
        }
        throw GrantError(.alreadyExists, "the view “\(request.view)” has a grant named “\(name)” already")
    }

    private func carryOut(_ ways: [Way]) throws(GrantError) -> [GrantedDirectory] {
        let (restored, choices) = (Self.restored(ways), Self.choices(ways))
        if !restored.isEmpty { _ = try administrator.restore(restored) }
        var made = (choices.isEmpty ? [] : try administrator.grant(choices)).map(\.grant)[...]
        let ids = ways.map { way in
            switch way {
            case .kept(let grant), .restored(let grant): grant.id
            case .new: made.removeFirst().id
            }
        }
        return try GrantedDirectory.of(ids)
    }

    private static func restored(_ ways: [Way]) -> [Grant] {
        ways.compactMap { way in if case .restored(let grant) = way { grant } else { nil } }
    }

    private static func choices(_ ways: [Way]) -> [GrantAdministrator.Choice] {
        ways.compactMap { way in if case .new(let choice) = way { choice } else { nil } }
    }

    /// Removes the new grants and revokes the restored ones, after an error.
    ///
    /// Returns what may still be granted and why, nil if nothing is.
    ///
    /// - Parameter unmade: Whether none of the new grants was made.
    private func takeBack(_ ways: [Way], unmade: Bool) -> String? {
        let (restored, choices) = (Self.restored(ways), unmade ? [] : Self.choices(ways))
        var failures: [String] = []
        func attempt(_ grants: [Grant], _ withdraw: ([Grant]) throws(GrantError) -> [GrantChange]) {
            let names = grants.map { "“\($0.name)”" }.joined(separator: ", ")
            do throws(GrantError) {
                if !grants.isEmpty, try !withdraw(grants).areConfirmed {
                    failures.append("a mount has not confirmed the withdrawal of \(names)")
                }
            } catch {
                failures.append("\(names) may still be granted: \(error)")
            }
        }
        if !choices.isEmpty {
            do throws(GrantError) {
                let made = try administrator.store.grants(view: request.view).filter { grant in
                    choices.contains { $0.name == grant.name && isSame($0.proposal.bookmark, grant.bookmark) }
                }
                attempt(made) { grants throws(GrantError) in try administrator.remove(grants) }
            } catch {
                failures.append("new grants may exist: \(error)")
            }
        }
        attempt(restored) { grants throws(GrantError) in try administrator.revoke(grants) }
        return failures.isEmpty ? nil : failures.joined(separator: "; ")
    }
}
