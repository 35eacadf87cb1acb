import Foundation
import GrantAdministration
import GrantModel

/// A directory that was granted, and the way to it.
///
/// There, a grant is what the system remembers of a choice in an open panel or a document picker. Here somebody makes it, with `grantfs grant` or with
/// `GrantedDirectory.grant`: whoever may read the store may.
public struct GrantedDirectory: Sendable, Identifiable {
    /// The record, as it was when this value was made.
    public let grant: Grant
    /// In a mount of the grant's view when one shows it to this process; else the directory itself.
    public let url: URL
    /// Whether a revocation binds whoever uses `url`.
    public let isInMount: Bool

    /// The grant's.
    public var id: GrantID { grant.id }

    /// Grants a directory, as `grantfs grant` does: durable when it returns, and shown in every mount of the view. A missing store is made.
    ///
    /// `document`: a file may be granted as well, which is shown in that form; nil refuses files.
    ///
    /// `.invalidDirectory`, `.alreadyExists` when the name is taken in the view, `.usage` for a name that can be none.
    public static func grant(
        _ directory: URL, to view: ViewName = .standard, name: String? = nil, access: Access = .readWrite, expires: Date? = nil,
        document: DocumentBookmark.Form? = nil
    ) throws(GrantError) -> GrantedDirectory {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator(create: true)
        var chosen: GrantName?
        if let name {
            do {
                chosen = try GrantName(chosen: Array(name.utf8))
            } catch {
                throw GrantError(.usage, "“\(name)” is no name for a grant", cause: error.rawValue)
            }
        }
        let proposal = try GrantAdministrator.propose(
            directory: try FilePath.bytes(directory), name: chosen, store: administrator.store.directory, document: document,
            probe: administrator.probe)
        let expiry = expires.map { Instant(nanoseconds: Int64($0.timeIntervalSince1970 * 1e9)) }
        let change = try administrator.grant(proposal, view: view, access: access, expires: expiry)
        return try GrantedDirectory(change.grant, administrator, environment)
    }

    /// The grant through which a URL can be reached, in a mount or on the host. `.permission` when there is none that is active, `.notFound`.
    public init(containing url: URL) throws(GrantError) {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let place = try GrantedPlace(try FilePath.canonical(url), administrator: administrator)
        try self.init(place.grant, administrator, environment)
    }

    /// The active grants whose directories can be reached now, of one view or of all.
    public static func all(in view: ViewName? = nil) throws(GrantError) -> [GrantedDirectory] {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let now = Instant(nanoseconds: Int64(Date().timeIntervalSince1970 * 1e9))
        return try administrator.store.grants(view: view).filter { $0.state(at: now) == .active }
            .compactMap { try? GrantedDirectory($0, administrator, environment) }
    }

    /// The grants with these ids, in their order; those that there are no more are left out.
    static func of(_ ids: [GrantID]) throws(GrantError) -> [GrantedDirectory] {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        var result: [GrantedDirectory] = []
        for id in ids {
            guard let grant = try administrator.store.grant(id) else { continue }
            result.append(try GrantedDirectory(grant, administrator, environment))
        }
        return result
    }

    private init(_ grant: Grant, _ administrator: GrantAdministrator, _ environment: GrantEnvironment) throws(GrantError) {
        let found = try BookmarkFinder.find(grant, administrator, environment)
        self.grant = grant
        // A document's directory holds the document under the name that it was granted by.
        let isHeld = found.isInMount && grant.bookmark.document?.form == .directory
        let path = isHeld ? FilePath.join(found.path, grant.bookmark.document?.name.bytes ?? []) : found.path
        url = FilePath.url(path, isDirectory: grant.bookmark.document == nil)
        isInMount = found.isInMount
    }

    /// A bookmark that leads through the grant.
    public func bookmark() throws(GrantError) -> DirectoryBookmark { try DirectoryBookmark(of: url) }

    /// Runs `body` with the URL while access to it is started, and stops it afterwards. `.permission` when it does not start, because the grant was withdrawn
    /// meanwhile; what `body` throws is thrown on.
    public func withAccess<Result>(_ body: (URL) throws -> Result) throws -> Result {
        try start()
        defer { url.stopAccessingSecurityScopedResource() }
        return try body(url)
    }

    /// The same for what is asynchronous.
    public func withAccess<Result>(isolation: isolated (any Actor)? = #isolation, _ body: (URL) async throws -> Result) async throws
        -> Result
    {
        try start()
        defer { url.stopAccessingSecurityScopedResource() }
        return try await body(url)
    }

    private func start() throws(GrantError) {
        if url.startAccessingSecurityScopedResource() { return }
        throw GrantError(.permission, "“\(url.path)” cannot be used", cause: "the grant “\(grant.name)” leads there no more")
    }

    /// Withdraws the grant: on disk, then in every mount, as `grantfs revoke` does. `.unconfirmed` when it is recorded and some mount has not
    /// said that it is in force.
    public func revoke() throws(GrantError) {
        let administrator = try GrantEnvironment.current.administrator()
        if try administrator.revoke([grant]).areConfirmed { return }
        throw GrantError(.unconfirmed, "the withdrawal of “\(grant.name)” is recorded, but a mount has not confirmed it")
    }
}
