import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Follows a document on the host. Used by administration, never by a request.
extension ViewFS {
    /// The result of a check of a document's place.
    public enum DocumentFinding: Sendable {
        /// The document or its accepted replacement lies at this path.
        case found(path: [UInt8])
        /// It is not in its place, perhaps only for a moment: check again.
        case underWay
        /// It was removed, or a file that is not accepted has its place.
        case gone
    }

    /// The document of a grant of one file.
    public func document(of scope: Scope) -> DocumentPlace? { scope.nodes.document }

    /// The document's path, as far as the kernel knows it.
    func path(of document: DocumentPlace) -> [UInt8]? {
        guard let entry = document.entry, let above = try? entry.directory.descriptor.path() else { return nil }
        let name = entry.name.dropLast().map { UInt8(bitPattern: $0) }
        return above == [0x2F] ? above + name : above + [0x2F] + name
    }

    /// Checks whether the document is in its place, and shows its replacement.
    ///
    /// A program that saves moves the old file away for a moment. So the document is searched
    /// elsewhere only if it was missing at the last check already (`wasUnderWay`).
    public func follow(_ scope: Scope, wasUnderWay: Bool) -> DocumentFinding {
        guard let document = scope.nodes.document, let entry = document.entry else { return .gone }
        document.withStep { document.comeBack(after: Self.patience) { tree.isOpen($0, in: scope.nodes) } }
        if document.isStaged || document.isAway { return path(of: document).map { .found(path: $0) } ?? .gone }
        let opened = open(document)
        if opened >= 0 {
            let descriptor = FileDescriptor(owning: opened)
            if !document.isDirectory, document.key != document.node.map({ NodeKey($0.status) }) { try? show(document, in: scope.nodes) }
            // The kernel may have cached that listing.
            if document.isDirectory, document.takeListedWithout() { _ = claimInvalidator.invalidateListings([scope.rootNode], self) }
            _ = consume descriptor
            return path(of: document).map { .found(path: $0) } ?? .gone
        }
        guard let file = document.file, let status = try? file.descriptor.status(), status.st.st_nlink > 0 else { return .gone }
        guard wasUnderWay else { return .underWay }
        guard let path = try? file.descriptor.path(), let moved = Self.entry(path, of: document.key, crossing: entry) else { return .gone }
        document.move(to: moved)
        if let root = tree.nodes.find(scope.rootNode), document.isDirectory {
            // Watches of the old directory would otherwise be used up by repeated moves.
            hostWatch.end(of: scope.rootNode, root)
            watch(scope.rootNode, root)
            watchPlace(ofDocumentIn: scope.nodes)
        }
        return .found(path: path)
    }

    /// LOOKUP of a document shown as a file: shows the file that now has its name on the host.
    ///
    /// Returns 0 or a negative error number. A document that has another name on the host stays
    /// shown, and `follow` finds it there.
    @inline(never)
    func followReplacement(in nodes: ScopeNodes) -> Int32 {
        guard let document = nodes.document, let entry = document.entry, let shown = document.node else { return -ENOENT }
        // The caller needs no right to the directory on the host.
        _ = Identity.assume(Caller(uid: geteuid(), gid: getegid(), pid: 0, umask: 0))
        var status = FileStatus()
        let result = entry.name.withUnsafeBufferPointer { clinux_statx(entry.directory.descriptor.number, $0.baseAddress!, &status) }
        if result == 0, NodeKey(status) == NodeKey(shown.status) { return 0 }
        let opened = open(document)
        if opened >= 0 {
            _ = clinux_close(opened)
            if document.key != document.node.map({ NodeKey($0.status) }) { try? show(document, in: nodes) }
            return 0
        }
        if opened == -EACCES { return -ENOENT }
        guard opened == -ENOENT, let file = document.file else { return opened }
        return clinux_statx(file.descriptor.number, nil, &status) == 0 && status.st.st_nlink > 0 ? 0 : -ENOENT
    }

    /// The present attributes of a shown file, which may have changed since it was found.
    ///
    /// A kernel that trusts its own sizes uses them for as long as it knows the file.
    func currentAttributes(of shown: (id: UInt64, status: FileStatus)) -> stat {
        guard let node = tree.nodes.find(shown.id) else { return attributes(shown.status) }
        let descriptor = tree.pin(node)
        defer { tree.unpin(shown.id, node) }
        var status = FileStatus()
        guard descriptor >= 0, clinux_statx(descriptor, nil, &status) == 0 else { return attributes(shown.status) }
        var attributes = attributes(status)
        if kernelOpens, let time = shownTime(of: node) { attributes.st_mtim = time }
        return attributes
    }

    /// Nanoseconds after which a moved document is shown again if its mover has ended.
    ///
    /// They count from the move. A shell command consists of several programs, so the end of one
    /// does not suffice.
    private static let patience = Int64(truncatingIfNeeded: InjectedFault.leftoverSeconds.number ?? 10) * 1_000_000_000

    /// The last name of a link-free path, if it belongs to the file `key`.
    private static func entry(_ path: [UInt8], of key: NodeKey, crossing: DocumentPlace.Entry) -> DocumentPlace.Entry? {
        guard let slash = path.lastIndex(of: 0x2F), let root = try? FileDescriptor.open([0x2F], OpenFlags.path | O_DIRECTORY) else {
            return nil
        }
        let above = slash == 0 ? [0x2E] : Array(path[1..<slash])
        guard
            let directory = try? FileDescriptor.openBeneath(
                root.number, above, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW, crossMounts: true)
        else { return nil }
        return try? entry(named: Array(path[(slash + 1)...]), in: directory, of: key)
    }

    /// Returns a name in a directory, verified to belong to the file `key`.
    ///
    /// - Throws: ESTALE if it belongs to another file.
    public static func entry(
        named name: [UInt8], in directory: consuming FileDescriptor, of key: NodeKey
    ) throws(Errno) -> DocumentPlace.Entry {
        let text = name.map { CChar(bitPattern: $0) } + [0]
        let file = try FileDescriptor.openBeneath(directory.number, name, OpenFlags.path | O_NOFOLLOW)
        guard NodeKey(descriptor: file.number) == key else { throw Errno(ESTALE) }
        return DocumentPlace.Entry(DocumentPlace.Held(directory), text)
    }

    /// Makes the scope's name lead to the document's file. Holders of the old file keep it.
    func show(_ document: DocumentPlace, in nodes: ScopeNodes) throws(Errno) {
        guard let file = document.file else { throw Errno(ESTALE) }
        let status = try file.descriptor.status()
        let copy = try file.descriptor.reopened(OpenFlags.path)
        guard tree.showDocument(copy, status, of: nodes) != nil else { throw Errno(ENOMEM) }
    }
}
