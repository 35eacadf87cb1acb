import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

// The directory shown for a grant of one file: the file, which lies in a hidden host directory, and
// the files made beside it, which lie in a directory of this mount (docs/decisions/documents.md).
extension ViewFS {
    /// A name in an open directory.
    typealias Named = (directory: Int32, text: UnsafePointer<CChar>)

    /// Whether a node is the directory that shows a document. Every lookup calls it.
    @inline(__always)
    func isDocumentDirectory(_ id: NodeID, _ node: NodePointer) -> Bool {
        node.pointee.withOwner { $0.documentRoot.load(ordering: .relaxed) == id.rawValue }
    }

    /// Whether `name` in such a directory is special: the document's own name or a hidden one.
    @inline(never)
    func concernsDocument(_ id: NodeID, _ node: NodePointer, _ name: UnsafePointer<CChar>) -> Bool {
        document(of: id, node, named: name) != nil
    }

    /// The document that this directory shows. Returns nil for every other node.
    @inline(__always)
    func document(of id: NodeID, _ node: NodePointer) -> DocumentPlace? {
        isDocumentDirectory(id, node) ? node.pointee.withOwner { $0.document } : nil
    }

    /// The document that this directory shows, if `name` is special.
    @inline(__always)
    func document(of id: NodeID, _ node: NodePointer, named name: UnsafePointer<CChar>) -> DocumentPlace? {
        guard let document = document(of: id, node), document.isNamed(name) || DocumentPlace.isReserved(name) else { return nil }
        return document
    }

    /// LOOKUP of the document or of a hidden name. `cachesAttributes`: as for `replyEntry`.
    @inline(never)
    func replyDocument(
        _ request: consuming Request, _ name: UnsafePointer<CChar>, found parent: (id: NodeID, node: NodePointer),
        cachesAttributes: Bool = true
    ) {
        let document = document(of: parent.id, parent.node)
        let descriptor = document.map { $0.isNamed(name) ? open($0) : -ENOENT } ?? -ENOENT
        if descriptor < 0 {
            request.reply(failure: descriptor)
            return
        }
        var parameters = EntryParameters()
        let error = enter(descriptor, nil, found: parent, since: hostWatch.renamesSeen, into: &parameters)
        if error == 0 { tree.nodes.find(parameters.ino)?.pointee.markNameless() }
        if !cachesAttributes { parameters.attr_timeout = 0 }
        if error != 0 {
            request.reply(error: error)
        } else if !request.reply(entry: &parameters) {
            tree.forget(parameters.ino, 1)
        }
    }

    /// Opens the document that the view shows, with O_PATH.
    ///
    /// It is the known file or an accepted replacement. ENOENT if there is none, EACCES if another
    /// file has its name on the host.
    func open(_ document: DocumentPlace) -> Int32 { document.withStep { find(document) } }

    /// Does the same as `open`, within a step.
    private func find(_ document: DocumentPlace) -> Int32 {
        guard let entry = document.shown else { return -ENOENT }
        let isStaged = document.isStaged
        let opened = entry.name.withUnsafeBufferPointer { name in
            tree.evictingIfNeeded {
                clinux_open_beneath(entry.directory.descriptor.number, name.baseAddress!, clinux_O_PATH | O_NOFOLLOW, 0, false)
            }
        }
        if opened < 0 { return opened == -EXDEV ? -EACCES : opened }
        var status = FileStatus()
        guard clinux_statx(opened, nil, &status) == 0, status.st.st_mode & S_IFMT == S_IFREG, !status.is_mount_root else {
            _ = clinux_close(opened)
            return -EACCES
        }
        let key = NodeKey(status)
        if isStaged || document.isKnown(key) { return opened }
        guard status.mayReplaceDocument(ofOwner: document.owner), let held = copy(of: opened) else {
            _ = clinux_close(opened)
            return -EACCES
        }
        document.take(held, key: key, owner: status.st.st_uid, isOurs: false)
        return opened
    }

    /// Another descriptor of the same file, for a document to keep.
    private func copy(of descriptor: Int32) -> DocumentPlace.Held? {
        let copy = clinux_reopen(descriptor, clinux_O_PATH)
        return copy < 0 ? nil : DocumentPlace.Held(FileDescriptor(owning: copy))
    }

    // MARK: making

    /// Whether a program may create a new document, if the view shows none.
    ///
    /// Returns 0 or a negative error number. Call it within a step, like `begin`.
    func mayBegin(_ document: DocumentPlace, as caller: Caller) -> Int32 {
        guard let entry = document.entry, let workplace = document.workplace else { return -ESTALE }
        if !document.isAway || document.isStaged {
            let there = find(document)
            if there >= 0 { _ = clinux_close(there) }
            if there != -ENOENT { return there >= 0 ? -EEXIST : there }
        }
        let refusal = asCaller(caller) { clinux_may_make_in(entry.directory.descriptor.number) }
        if refusal < 0 { return refusal }
        return keepUnfinished(document, in: workplace.descriptor.number)
    }

    /// Renames a new document whose writer was killed to a name beside the document.
    ///
    /// Returns 0 or a negative error number.
    private func keepUnfinished(_ document: DocumentPlace, in workplace: Int32) -> Int32 {
        var status = FileStatus()
        if clinux_statx(workplace, stagedName, &status) != 0 { return 0 }
        if status.st.st_size == 0 { return clinux_unlinkat(workplace, stagedName, false) }
        while true {
            let number = Self.passages.wrappingAdd(1, ordering: .relaxed).newValue
            let name = document.name.dropLast().prefix(100).map { UInt8(bitPattern: $0) } + Array(".unfinished-\(number)".utf8)
            let result = withCString(name) { clinux_renameat2(workplace, stagedName, workplace, $0, renameNoReplace) }
            if result != -EEXIST { return result }
        }
    }

    /// Registers the file made under the staged name as the new document.
    ///
    /// `flags`: of its open. A file that cannot be written is complete, and replaces the document
    /// immediately.
    func begin(_ document: DocumentPlace, _ id: UInt64, _ flags: Int32, as caller: Caller) {
        guard let node = tree.nodes.find(id) else { return }
        node.pointee.markNameless()
        document.leave(by: DocumentPlace.Maker(thread: caller.pid))
        document.stage(node.pointee.key)
        // No request tells when it is closed.
        if kernelOpens || flags & O_ACCMODE == O_RDONLY { _ = publish(document, node.pointee.key, as: caller) }
    }

    /// FLUSH in a document's scope: a new document that was closed replaces the old one.
    ///
    /// Returns 0 or a negative error number.
    @inline(never)
    func publish(_ id: UInt64, as caller: Caller) -> Int32 {
        guard let node = tree.nodes.find(id) else { return 0 }
        let document = node.pointee.withOwner { $0.documentRoot.load(ordering: .relaxed) == 0 ? nil : $0.document }
        guard let document, document.isStaged(node.pointee.key) else { return 0 }
        return document.withStep {
            // A partial document must not replace the old one.
            if ProcessName.isBeingKilled(caller.pid) {
                if node.pointee.openers.load(ordering: .relaxed) <= 1 { document.abandon(node.pointee.key) }
                return 0
            }
            return publish(document, node.pointee.key, as: caller)
        }
    }

    private func publish(_ document: DocumentPlace, _ key: NodeKey, as caller: Caller) -> Int32 {
        guard let workplace = document.workplace, document.isStaged(key) else { return 0 }
        return put((workplace.descriptor.number, stagedName), document, as: caller)
    }

    /// Atomically replaces the document by a file of the workplace that no program can name.
    private func put(_ from: Named, _ document: DocumentPlace, as caller: Caller) -> Int32 {
        guard let entry = document.entry else { return -ESTALE }
        var status = FileStatus()
        let path = clinux_open_beneath(from.directory, from.text, clinux_O_PATH | O_NOFOLLOW, 0, false)
        if path < 0 { return path }
        let held = DocumentPlace.Held(FileDescriptor(owning: path))
        // A link or FIFO would make programs on the host open something else.
        guard clinux_statx(path, nil, &status) == 0, status.st.st_mode & S_IFMT == S_IFREG else { return -EPERM }
        let refusal = standsInTheWay(of: document, entry)
        if refusal != 0 { return refusal }
        document.expect(NodeKey(status))
        defer { document.expect(nil) }
        let result = entry.name.withUnsafeBufferPointer { name in
            asCaller(caller) { clinux_renameat2(from.directory, from.text, entry.directory.descriptor.number, name.baseAddress!, 0) }
        }
        if result < 0 { return result }
        // As natively, a new document that another one replaces has no name from then on.
        if document.isStaged, !document.isStaged(NodeKey(status)) { _ = clinux_unlinkat(from.directory, stagedName, false) }
        document.take(held, key: NodeKey(status), owner: status.st.st_uid, isOurs: true)
        return 0
    }

    /// Whether another file has the document's name on the host.
    ///
    /// Returns 0 if there is none or if it is the document, otherwise a negative error number.
    private func standsInTheWay(of document: DocumentPlace, _ entry: DocumentPlace.Entry) -> Int32 {
        var status = FileStatus()
        let result = entry.name.withUnsafeBufferPointer { clinux_statx(entry.directory.descriptor.number, $0.baseAddress!, &status) }
        if result < 0 { return result == -ENOENT ? 0 : result }
        return NodeKey(status) == document.key || status.mayReplaceDocument(ofOwner: document.owner) ? 0 : -EACCES
    }

    // MARK: names

    /// UNLINK of the document or of a hidden name.
    func unlink(_ document: DocumentPlace, _ name: UnsafePointer<CChar>, directory: Bool, as caller: Caller) -> Int32 {
        guard document.isNamed(name) else { return -ENOENT }
        return directory ? -ENOTDIR : document.withStep { unlink(document, as: caller) }
    }

    private func unlink(_ document: DocumentPlace, as caller: Caller) -> Int32 {
        guard let entry = document.shown else { return -ENOENT }
        if document.isStaged {
            let result = clinux_unlinkat(entry.directory.descriptor.number, stagedName, false)
            if result == 0 { document.unstage() }
            return result
        }
        let there = find(document)
        if there < 0 { return there }
        defer { _ = clinux_close(there) }
        return entry.name.withUnsafeBufferPointer { name in
            asCaller(caller) { clinux_unlinkat(entry.directory.descriptor.number, name.baseAddress!, false) }
        }
    }

    /// RENAME that involves a special name. `from`, `to`: nil document for ordinary names.
    func rename(
        _ from: (named: Named, document: DocumentPlace?), _ to: (named: Named, document: DocumentPlace?), _ flags: UInt32, as caller: Caller
    ) -> Int32 {
        if let document = from.document, !document.isNamed(from.named.text) { return -ENOENT }
        if let document = to.document, !document.isNamed(to.named.text) { return -EACCES }
        if flags & ~renameNoReplace != 0 { return -EINVAL }
        switch (from.document, to.document) {
        case (let document?, nil): return document.withStep { moveAway(document, to: to.named, flags, as: caller) }
        case (nil, let document?): return document.withStep { replace(document, by: from.named, flags, as: caller) }
        default: return from.document?.shown == nil ? -ENOENT : flags != 0 ? -EEXIST : 0
        }
    }

    /// Replaces the document by a file that a program wrote beside it to save.
    private func replace(_ document: DocumentPlace, by source: Named, _ flags: UInt32, as caller: Caller) -> Int32 {
        if flags & renameNoReplace != 0 {
            let refusal = mayBegin(document, as: caller)
            if refusal != 0 { return refusal }
        }
        let bring = { clinux_renameat2(source.directory, source.text, $0, $1, renameNoReplace) }
        // If its own name is taken by now, the file stays in the workplace.
        return throughWorkplace(document, bring, keepsRefused: true) { place in
            let result = put(place, document, as: caller)
            if result != 0 { _ = clinux_renameat2(place.directory, place.text, source.directory, source.text, renameNoReplace) }
            return result
        }
    }

    /// Moves the document away, usually as a backup while a program writes the new one.
    ///
    /// On the host the document keeps its name as well, so that it survives the program's death.
    private func moveAway(_ document: DocumentPlace, to target: Named, _ flags: UInt32, as caller: Caller) -> Int32 {
        guard let shown = document.shown, let entry = document.entry else { return -ENOENT }
        if document.isStaged {
            let result = clinux_renameat2(shown.directory.descriptor.number, stagedName, target.directory, target.text, flags)
            if result == 0 { document.unstage() }
            return result
        }
        let there = find(document)
        if there < 0 { return there }
        defer { _ = clinux_close(there) }
        let result = asCaller(caller) { () -> Int32 in
            let refusal = clinux_may_make_in(entry.directory.descriptor.number)
            return refusal < 0
                ? refusal
                : throughWorkplace(document, { clinux_link_descriptor(there, $0, $1) }) {
                    clinux_renameat2($0.directory, $0.text, target.directory, target.text, flags)
                }
        }
        if result == 0 { document.leave(by: DocumentPlace.Maker(thread: caller.pid)) }
        return result
    }

    /// LINK to the document's name, which must be free, or to a hidden one.
    func link(_ descriptor: Int32, to document: DocumentPlace, _ name: UnsafePointer<CChar>, as caller: Caller) -> Int32 {
        guard document.isNamed(name) else { return -EACCES }
        return document.withStep {
            let refusal = mayBegin(document, as: caller)
            if refusal != 0 { return refusal }
            return throughWorkplace(document, { clinux_link_descriptor(descriptor, $0, $1) }) { put($0, document, as: caller) }
        }
    }

    /// Moves a file by `bring` to a hidden name, and then runs `body`.
    ///
    /// No program can use the name, which lies in the workplace. So no program can exchange the
    /// file while it is checked. The name is removed afterwards. `keepsRefused`: only if `body` has
    /// succeeded.
    private func throughWorkplace(
        _ document: DocumentPlace, _ bring: (Int32, UnsafePointer<CChar>) -> Int32, keepsRefused: Bool = false, _ body: (Named) -> Int32
    ) -> Int32 {
        guard let workplace = document.workplace else { return -ESTALE }
        let number = Self.passages.wrappingAdd(1, ordering: .relaxed).newValue
        return withCString(Array("\(DocumentPlace.reserved)put-\(number)".utf8)) { text in
            let directory = workplace.descriptor.number
            let brought = bring(directory, text)
            if brought < 0 { return brought }
            let result = body((directory, text))
            // rename(2) between two names of one file keeps both.
            if result == 0 || !keepsRefused { _ = clinux_unlinkat(directory, text, false) }
            return result
        }
    }

    private static let passages = Atomic<UInt64>(0)

    // MARK: the directory itself

    /// The document's position in its directory's listing.
    ///
    /// It is the first entry, at a position that no filesystem uses.
    static let documentPosition: UInt64 = 0x7fff_ffff_ffff_f00d

    /// Adds the document at the start of a listing.
    func addDocument(_ document: DocumentPlace, to listing: inout Listing) {
        let there = open(document)
        if there < 0 { return document.noteListedWithout() }
        defer { _ = clinux_close(there) }
        var (status, parameters) = (FileStatus(), EntryParameters())
        guard clinux_statx(there, nil, &status) == 0 else { return }
        parameters.attr.st_ino = attributes(status).st_ino
        parameters.attr.st_mode = S_IFREG
        document.name.withUnsafeBufferPointer { name in
            guard listing.hasRoom(for: name.baseAddress!) else { return }
            listing.add(&parameters, name.baseAddress!, next: Self.documentPosition)
        }
    }

    /// FSYNCDIR: syncs the host directory that holds the document's name.
    func syncParent(of document: DocumentPlace) -> Int32 {
        guard let entry = document.entry else { return 0 }
        let opened = clinux_reopen(entry.directory.descriptor.number, O_RDONLY | O_DIRECTORY)
        if opened < 0 { return 0 }
        defer { _ = clinux_close(opened) }
        return clinux_fsync(opened, false)
    }

    /// Runs `body` with the caller's own rights and groups.
    ///
    /// The kernel in front has checked no permission in the document's directory on the host.
    private func asCaller(_ caller: Caller, _ body: () -> Int32) -> Int32 {
        let error = Identity.assume(caller, groups: true)
        if error != 0 { return 0 &- error }
        return Identity.asPrivileged(as: caller, body)
    }
}

/// `DocumentPlace.stagedName`, for system calls.
var stagedName: UnsafePointer<CChar> {
    // Static strings are NUL-terminated and never freed.
    UnsafeRawPointer((".grantfs-new" as StaticString).utf8Start).assumingMemoryBound(to: CChar.self)
}

/// RENAME_NOREPLACE of <linux/fs.h>.
private let renameNoReplace: UInt32 = 1
