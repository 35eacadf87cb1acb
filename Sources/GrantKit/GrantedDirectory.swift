import Foundation
import GrantAdministration
import GrantModel

/// A granted directory, and its URL.
///
/// There, the system makes a grant of a choice in an open panel or a document picker. Here it is
/// made with `grantfs grant` or `GrantedDirectory.grant`, by any program with access to the store.
public struct GrantedDirectory: Sendable, Identifiable {
    /// The record, as of when this value was made.
    public let grant: Grant
    /// The URL in a mount of the grant's view, or the directory's own if no mount shows it to this
    /// process.
    public let url: URL
    /// Whether a revocation affects users of `url`.
    public let isInMount: Bool

    /// The grant's id.
    public var id: GrantID { grant.id }

    /// Grants a directory, as `grantfs grant` does: durable when it returns, and shown in every mount of the view. A missing store is
    /// made.
    ///
    /// - Parameters:
    ///   - directory: The directory, or a file if `document` is given.
    ///   - view: The view that shows it.
    ///   - name: The name in the view. The default is the name of the directory.
    ///   - access: The operations that programs may use.
    ///   - expires: The end of the grant, or nil if it has no end.
    ///   - document: The form in which a file is shown. Files are refused if it is nil.
    ///
    /// - Throws: `.invalidDirectory`, `.alreadyExists` if the name is taken in the view, or
    ///   `.usage` for an invalid name.
    public static func grant(
        _ directory: URL, to view: ViewName = .standard, name: String? = nil, access: GrantAccess = .readWrite, expires: Date? = nil,
        document: GrantedFileForm? = nil
    ) throws(GrantError) -> GrantedDirectory {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator(create: true)
        var chosen: GrantName?
        if let name {
            do {
                chosen = try GrantName(chosen: Array(name.utf8))
            } catch {
                throw GrantError(.usage, "invalid grant name “\(name)”", cause: error.rawValue)
            }
        }
        let proposal = try GrantAdministrator.propose(
            directory: try FilePath.bytes(directory), name: chosen, store: administrator.store.directory, document: document,
            probe: administrator.probe)
        let expiry = expires.map { Instant(nanoseconds: Int64($0.timeIntervalSince1970 * 1e9)) }
        let change = try administrator.grant(proposal, view: view, access: access, expires: expiry)
        return try GrantedDirectory(change.grant, administrator, environment)
    }

    /// Finds the grant that leads to a URL, in a mount or on the host.
    ///
    /// - Parameter url: A URL of the directory, or of an item in it.
    /// - Throws: `.permission` if no active grant leads there, or `.notFound`.
    public init(containing url: URL) throws(GrantError) {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let place = try GrantedPlace(try FilePath.canonical(url), administrator: administrator)
        try self.init(place.grant, administrator, environment)
    }

    /// Returns the active grants whose directories are accessible now, of one view or of all.
    public static func all(in view: ViewName? = nil) throws(GrantError) -> [GrantedDirectory] {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let now = Instant(nanoseconds: Int64(Date().timeIntervalSince1970 * 1e9))
        return try administrator.store.grants(view: view).filter { $0.state(at: now) == .active }
            .compactMap { try? GrantedDirectory($0, administrator, environment) }
    }

    /// Returns the grants with these ids, in order, without missing ones.
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
        // A document's directory holds the document under the name with which it was granted.
        let isHeld = found.isInMount && grant.bookmark.document?.form == .directory
        let path = isHeld ? FilePath.join(found.path, grant.bookmark.document?.name.bytes ?? []) : found.path
        url = FilePath.url(path, isDirectory: grant.bookmark.document == nil)
        isInMount = found.isInMount
    }

    /// Makes a bookmark through the grant.
    public func bookmark() throws(GrantError) -> DirectoryBookmark { try DirectoryBookmark(of: url) }

    /// Runs `body` with the URL while access is started.
    ///
    /// - Parameter body: Gets the URL.
    /// - Returns: The result of `body`.
    /// - Throws: `.permission` if access cannot be started, because the grant was withdrawn
    ///   meanwhile, and errors of `body`.
    public func withAccess<Result>(_ body: (URL) throws -> Result) throws -> Result {
        try start()
        defer { url.stopAccessingSecurityScopedResource() }
        return try body(url)
    }

    /// The asynchronous form.
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

    /// Revokes the grant: on disk, then in every mount, as `grantfs revoke` does.
    ///
    /// - Throws: `.unconfirmed` if it is recorded but some mount has not confirmed.
    public func revoke() throws(GrantError) {
        let administrator = try GrantEnvironment.current.administrator()
        try confirm(try administrator.revoke([grant]), "the withdrawal")
    }

    /// Makes the revoked or expired grant active again, as `grantfs restore` does.
    ///
    /// - Returns: The directory with the changed record.
    /// - Throws: The errors of `grant`, and `.unconfirmed` as `revoke` does.
    public func restore() throws(GrantError) -> GrantedDirectory {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let changes = try administrator.restore([grant])
        try confirm(changes, "the restoration")
        return try GrantedDirectory(changes.first?.grant ?? grant, administrator, environment)
    }

    /// Revokes the grant, and removes its record: its bookmarks are void for ever.
    public func remove() throws(GrantError) {
        let administrator = try GrantEnvironment.current.administrator()
        try confirm(try administrator.remove([grant]), "the removal")
    }

    /// What the grant lets programs do.
    public var access: GrantAccess { grant.access }

    /// Changes what the grant lets programs do, as `grantfs set --access` does. Returns the changed grant.
    public func setAccess(_ access: GrantAccess) throws(GrantError) -> GrantedDirectory {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let change = try administrator.set(grant, access: access, name: nil, expires: nil)
        try confirm([change], "the change")
        return try GrantedDirectory(change.grant, administrator, environment)
    }

    /// The names below the directory that are hidden, protected, or alone visible.
    public var rules: GrantRules { grant.rules }

    /// Changes the rules, as `grantfs set --hide` does. Returns the changed grant.
    ///
    /// - Throws: `.usage` for rules of a file, and `.unconfirmed` as `revoke` does.
    public func setRules(_ rules: GrantRules) throws(GrantError) -> GrantedDirectory {
        let environment = GrantEnvironment.current
        let administrator = try environment.administrator()
        let change = try administrator.set(grant, access: nil, name: nil, expires: nil, rules: RuleChange(rules))
        try confirm([change], "the change")
        return try GrantedDirectory(change.grant, administrator, environment)
    }

    /// Returns the revoked and expired grants of one view or of all, to be restored or removed. `url` is where the directory was last.
    public static func revoked(in view: ViewName? = nil) throws(GrantError) -> [GrantedDirectory] {
        let administrator = try GrantEnvironment.current.administrator()
        let now = Instant(nanoseconds: Int64(Date().timeIntervalSince1970 * 1e9))
        return try administrator.store.grants(view: view).filter { $0.state(at: now) != .active }.map { GrantedDirectory(lost: $0) }
    }

    private init(lost grant: Grant) {
        self.grant = grant
        url = FilePath.url(grant.bookmark.path, isDirectory: grant.bookmark.document == nil)
        isInMount = false
    }

    private func confirm(_ changes: [GrantChange], _ what: String) throws(GrantError) {
        if changes.areConfirmed { return }
        throw GrantError(.unconfirmed, "\(what) of “\(grant.name)” is recorded, but a mount has not confirmed it")
    }
}
