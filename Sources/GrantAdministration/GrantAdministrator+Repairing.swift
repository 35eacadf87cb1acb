import GrantModel
import GrantStore
import GrantSystem

/// A grant whose directory is not where it was, and its possible repair.
public struct RepairProposal: Sendable {
    public enum Need: String, Sendable {
        /// Nothing: the directory was found elsewhere, and its next mount records the path.
        case renewal
        /// It has to be taken out of the Trash.
        case untrashing
        /// Its volume has to be mounted, or a mount over it to be unmounted.
        case volume
        /// Its filesystem has to answer.
        case answer
        /// A user has to accept the other directory, or put the old one back.
        case confirmation
        /// Copies have to be unmounted or removed until one is left.
        case choice
        /// The directory has to come back, otherwise the grant can be removed.
        case directory
    }

    public let grant: GrantDescription
    public let need: Need

    /// The result is nil for a grant that needs no repair.
    package init?(_ grant: GrantDescription) {
        self.grant = grant
        switch grant.finding {
        case .ok, .weak: return nil
        case .moved: need = .renewal
        case .missing: need = grant.reason == nil ? .directory : .untrashing
        case .unavailable: need = grant.isUnresponsive ? .answer : .volume
        case .replaced: need = .confirmation
        case .ambiguous: need = .choice
        }
    }

    /// Whether `--prune` removes it: its filesystem is mounted, and the directory is nowhere on it.
    public var isPrunable: Bool { need == .directory }
}

extension GrantAdministrator {
    /// Returns every grant, in any state, whose directory is not where it was. It changes nothing.
    public func repairs(view: ViewName? = nil) throws(GrantError) -> [RepairProposal] {
        let grants = try store.grants(view: view)
        return describe(grants).compactMap { RepairProposal($0) }
    }

    /// Accepts the directory that is now at the path of a grant whose own directory is gone, or the
    /// directory that carries its tag, wherever it is. Files reached through the old one stay
    /// refused. It throws `.invalidDirectory` if the grant's directory was not replaced, `path` leads
    /// to neither of the two, or the directory could not be granted.
    ///
    /// - Parameter path: The absolute path of the directory. If it is nil, the one with the tag is
    ///   accepted, or else the one at the grant's path.
    public func confirm(
        _ grant: Grant, at path: [UInt8]? = nil, timeout: Double = standardTimeout
    ) throws(GrantError) -> GrantChange {
        let described = describe([grant])[0]
        let expected = described.copy ?? grant.bookmark.path
        let path = path ?? expected
        let place = String(decoding: path, as: UTF8.self)
        guard described.finding == .replaced else {
            throw GrantError(
                .invalidDirectory, "there is nothing to confirm for “\(grant.name)”",
                cause: "no other directory has taken the place of its own: the bookmark is \(described.finding.rawValue)"
                    + (described.reason.map { ", \($0)" } ?? ""))
        }
        let proposal = try GrantAdministrator.propose(
            directory: path, name: grant.name, store: store.directory, document: grant.bookmark.document?.form, probe: probe)
        let found = proposal.bookmark.path
        let candidates = [described.copy, grant.bookmark.path].compactMap { $0 }
        // The person has confirmed the path that was shown. Where a link leads, others may decide.
        if found != path, candidates.contains(path) {
            throw GrantError(
                .invalidDirectory, "“\(place)” cannot be accepted",
                cause: "a link to \(String(decoding: found, as: UTF8.self)) is in the way",
                advice: "remove this grant and grant that directory, if it is meant")
        }
        guard candidates.contains(found) else {
            throw GrantError(
                .invalidDirectory, "“\(place)” cannot be accepted",
                cause: "“\(grant.name)” was replaced by \(String(decoding: expected, as: UTF8.self))",
                advice: "remove this grant and grant that directory, if it is meant")
        }
        try LoopCheck(store: store).check(found, device: proposal.mountDevice)
        try ObeyedFiles.check(found, access: grant.access)
        var bookmark = proposal.bookmark
        guard (bookmark.document == nil) == (grant.bookmark.document == nil) else {
            throw GrantError(
                .invalidDirectory, "“\(place)” cannot be accepted",
                cause: grant.bookmark.document == nil ? "the grant is of a directory" : "the grant is of a file",
                advice: "remove this grant and grant that, if it is meant")
        }
        // The program keeps the name under which it knows the document.
        bookmark.document = grant.bookmark.document
        if proposal.tag == grant.bookmark.tag { bookmark.tag = proposal.tag }
        guard found != described.copy || bookmark.tag != nil else {
            throw GrantError(
                .invalidDirectory, "“\(place)” cannot be accepted", cause: "another directory has come there just now", advice: "try again")
        }
        try requireOwn([grant], "given another directory")
        try requireAllowed([(found, grant.view, grant.access)])
        return try broadcast([try store.rebookmark(grant, to: bookmark, by: actor)], timeout, withdraws: true)[0]
    }

    /// Makes every mount of the grants' views close their directories, even if processes hold
    /// something of them, so that the filesystems can be unmounted. The grants stay. A mount shows
    /// each again once its filesystem was unmounted and is back. A mount in which an operation
    /// hangs in the filesystem does not confirm: nothing but the operation's end releases it.
    public func release(_ grants: [Grant], timeout: Double = standardTimeout) throws(GrantError) -> [GrantChange] {
        for grant in grants { try store.append(.released, view: grant.view, grant: grant.id, name: grant.name, by: actor) }
        var announcer = ChangeBroadcast(store: store, withdraws: false)
        announcer.request = { .release(grants: $0, timeoutMilliseconds: $1) }
        return try announcer.broadcast(grants, timeout: timeout)
    }
}
