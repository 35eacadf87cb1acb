import GrantBookmarks
import Glibc
import GrantModel
import GrantMounts
import GrantSystem
import GrantViewFS
import GrantViewTree

// Grants of single files.
extension MountedView {
    /// A document's file that was found, ready to be shown.
    struct OpenedDocument {
        let place: DocumentPlace
        /// The directory that its scope is made of.
        let anchor: Int32
        let workplace: DocumentWorkplace?
    }

    /// Opens the parts of a document's scope. `file` was opened with O_PATH, and is the bookmarked
    /// file. `path` is its location.
    func openDocument(_ grant: Grant, _ file: consuming FileDescriptor, at path: [UInt8]) throws(Errno) -> OpenedDocument {
        guard let document = grant.bookmark.document, let slash = path.lastIndex(of: 0x2F), let key = NodeKey(descriptor: file.number)
        else {
            throw Errno(ENOENT)
        }
        let status = try file.status()
        let above = slash == 0 ? [0x2F] : Array(path[..<slash])
        let parent = try FileDescriptor.open(above, OpenFlags.path | O_DIRECTORY)
        let anchor = try parent.reopened(OpenFlags.path | O_DIRECTORY)
        let forWorkplace = try parent.reopened(OpenFlags.path | O_DIRECTORY)
        let lastName = Array(path[(slash + 1)...])
        let entry = try ViewFS.entry(named: lastName, in: parent, of: key)
        let name = document.name.bytes.map { CChar(bitPattern: $0) } + [0]
        let held = DocumentPlace.Held(file)
        guard document.form == .directory else {
            let place = DocumentPlace(entry, file: held, key: key, owner: status.st.st_uid, name: name, workplace: nil)
            return OpenedDocument(place: place, anchor: anchor.release(), workplace: nil)
        }
        let store = state.withLock { $0.store }
        let workplace = try DocumentWorkplace.make(in: forWorkplace, at: above, of: lastName, for: status, store: store)
        let place = DocumentPlace(
            entry, file: held, key: key, owner: status.st.st_uid, name: name,
            workplace: DocumentPlace.Held(try workplace.directory.reopened(OpenFlags.path | O_DIRECTORY)))
        return OpenedDocument(
            place: place, anchor: try workplace.directory.reopened(OpenFlags.path | O_DIRECTORY).release(), workplace: workplace)
    }

    /// Makes the scope of a document that was found, or nil when it cannot be.
    func makeScope(document grant: Grant, _ file: consuming FileDescriptor, at path: [UInt8]) -> Scope? {
        if owners != nil {
            noteUnmapped(grant, because: "it is one file")
            return nil
        }
        guard let opened = try? openDocument(grant, file, at: path) else { return nil }
        let scope = opening.withLock { _ in
            try? files.makeScope(
                for: grant.id, activation: grant.activation, readOnly: grant.access == .readOnly,
                directory: FileDescriptor(owning: opened.anchor), crossesMounts: options.submounts, document: opened.place)
        }
        guard let workplace = opened.workplace else { return scope }
        guard let scope else {
            _ = workplace.end()
            return nil
        }
        workplaces.withLock { $0.append((scope, workplace)) }
        let store = state.withLock { $0.store }
        _ = BackgroundTask(mayHang: true) { [self] in for path in workplace.endAbandoned(store) { sayKept(path, nil) } }
        return scope
    }

    /// Ends the workplaces of scopes that were withdrawn.
    ///
    /// - Parameters:
    ///   - all: the mount ends, and every scope with it.
    ///   - nanoseconds: the time to wait until that is done, for other threads that do so as well.
    func endWorkplaces(all: Bool = false, within nanoseconds: Int64 = 0) {
        let ended = workplaces.withLock { workplaces -> [(scope: Scope, workplace: DocumentWorkplace)] in
            let ended = workplaces.filter { all || files.isClosed($0.scope) }
            workplaces.removeAll { place in ended.contains { $0.workplace === place.workplace } }
            return ended
        }
        if !ended.isEmpty { end(ended) }
        wait(until: Clock.monotonic + nanoseconds) { endingWorkplaces.load(ordering: .acquiring) == 0 }
    }

    private func end(_ ended: [(scope: Scope, workplace: DocumentWorkplace)]) {
        endingWorkplaces.wrappingAdd(1, ordering: .relaxed)
        _ = BackgroundTask(mayHang: true) { [self] in
            for (scope, workplace) in ended {
                guard let path = workplace.end() else { continue }
                sayKept(path, state.withLock { $0.grants[scope.grant]?.grant })
            }
            endingWorkplaces.wrappingSubtract(1, ordering: .releasing)
        }
    }

    /// Writes down where files are that programs made beside a document: in the log of the store, where commands look for it, and in
    /// the system's.
    func sayKept(_ path: [UInt8], _ grant: Grant?) {
        let beside = grant.map { " beside “\($0.name)”" } ?? " beside a document"
        say(.notice, .changed, "what programs made\(beside) is kept in \(String(decoding: path, as: UTF8.self))", of: grant)
        // Best effort: the system's log has it as well.
        try? state.withLock { $0.store }.append(.keeping(path, of: grant, in: grant?.view ?? view, by: actor))
    }

    /// Looks where a document is now. Returns the changes to record.
    func followDocument(_ grant: Grant, _ scope: Scope, _ resolver: BookmarkResolver) -> Renewal? {
        let wasUnderWay = documentsUnderWay.withLock { $0.remove(scope.id.rawValue) != nil }
        switch files.follow(scope, wasUnderWay: wasUnderWay) {
        case .gone:
            show(grant, scope, false)
        case .underWay:
            _ = documentsUnderWay.withLock { $0.insert(scope.id.rawValue) }
        case .found(let path):
            let isTrashed = Trash.holds(path)
            show(grant, scope, !isTrashed)
            guard !isTrashed, let document = files.document(of: scope), let file = document.file,
                let renewed = resolver.renewed(grant.bookmark, heldAt: path, as: file.descriptor), renewed != grant.bookmark
            else { return nil }
            var renewal = Renewal(grant: grant.id, old: grant.bookmark, new: renewed)
            if renewed.identity != grant.bookmark.identity { renewal.replacedThroughGrant = document.changes.isOurs }
            return renewal
        }
        return nil
    }
}
