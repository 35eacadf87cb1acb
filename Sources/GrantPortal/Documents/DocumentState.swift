import GrantModel

/// The known state of all documents, and of the grants that show them.
struct DocumentState: Sendable {
    /// A grant of a document: of an application, or of the host, whose name is empty.
    struct Key: Hashable, Sendable {
        let app: String
        let id: String
    }

    private(set) var documents: [String: Document] = [:]
    private(set) var grants: [Key: Grant] = [:]
    /// Documents by the file that they are of.
    private var byInode: [UInt64: Set<String>] = [:]
    /// The holders of grants of each document.
    private var apps: [String: Set<String>] = [:]
    /// Which application has made a document since this program began, and how many there are of each.
    private var makers: [String: String] = [:]
    private var made: [String: Int] = [:]
    /// A change of permissions that was not written, or of which it is not known.
    struct Unwritten: Sendable {
        /// The permission store's contents by its last message. It should have the same permissions
        /// as the document.
        let known: Permissions
        /// Changes that it may have accepted without confirming them.
        var attempt: Permissions?
    }

    /// Permissions whose entries in the permission store must not be trusted.
    var unwritten: [Key: Unwritten] = [:]
    /// Documents that the permission store has not deleted yet.
    var undeleted: Set<String> = []
    /// Whether permissions are kept by the permission store.
    var hasStore = false
    /// Whether the permission store must be read as a whole, and has not been.
    var isUnread = true

    mutating func set(_ document: Document) { documents[document.id] = document }

    mutating func set(_ permissions: Permissions, of app: String, for id: String) {
        documents[id]?.permissions[app] = permissions.isEmpty ? nil : permissions
    }

    mutating func set(_ grant: Grant?, for key: Key) {
        if key.app.isEmpty, let before = grants[key] { byInode[before.bookmark.identity.inode]?.remove(key.id) }
        grants[key] = grant
        if grant == nil { apps[key.id]?.remove(key.app) } else { apps[key.id, default: []].insert(key.app) }
        if key.app.isEmpty, let grant { byInode[grant.bookmark.identity.inode, default: []].insert(key.id) }
    }

    mutating func forget(_ id: String) {
        for key in keys(of: id) { set(nil, for: key) }
        documents[id] = nil
        apps[id] = nil
        unwritten = unwritten.filter { $0.key.id != id }
        if let app = makers.removeValue(forKey: id) { made[app] = made[app].flatMap { $0 > 1 ? $0 - 1 : nil } }
    }

    mutating func set(maker app: String, of id: String) {
        guard makers.updateValue(app, forKey: id) == nil else { return }
        made[app, default: 0] += 1
    }

    func countMade(by app: String) -> Int { made[app] ?? 0 }

    /// Whether the permission store has, or should have, the permissions.
    func isKept(_ id: String) -> Bool { hasStore && documents[id]?.isTransient == false }

    func host(_ id: String) -> Grant? { grants[Key(app: "", id: id)] }

    /// Of every grant of the document, also of those that are withdrawn.
    func keys(of id: String) -> [Key] { (apps[id] ?? []).map { Key(app: $0, id: id) } }

    /// Where the document's file is, or was last seen.
    func path(of id: String) -> [UInt8]? { host(id)?.bookmark.path ?? documents[id]?.path }

    /// The documents of a file, by its bookmark.
    func documents(of bookmark: Bookmark) -> [Document] {
        (byInode[bookmark.identity.inode] ?? []).sorted().compactMap { id in
            guard let grant = host(id), grant.bookmark.identity == bookmark.identity, grant.bookmark.filesystem == bookmark.filesystem,
                (grant.bookmark.document == nil) == (bookmark.document == nil)
            else { return nil }
            return documents[id]
        }
    }

    func documents(inode: UInt64) -> [Document] { (byInode[inode] ?? []).sorted().compactMap { documents[$0] } }
}

/// The grants of documents in a list of grants, by application and document.
extension DocumentState.Key {
    init?(_ grant: Grant) {
        guard let app = DocumentNames.app(of: grant.view), DocumentNames.isStoredID(grant.name.description) else { return nil }
        self.init(app: app, id: grant.name.description)
    }
}
