import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

extension Documents {
    /// Reads what there is, and makes the grants agree with the permission store: of a permission and a grant the narrower one stands. Nothing is granted. Documents that
    /// have no grant yet are for `takeOver`; their ids come back.
    func load() throws(GrantError) -> [String] {
        try changing { () throws(GrantError) in
            let grants = try administrator.store.grants().filter { DocumentState.Key($0) != nil }
            let kept = kept()
            state.withLock { state in
                state.hasStore = kept != nil
                for document in kept ?? [] { state.set(document) }
                for grant in grants {
                    guard let key = DocumentState.Key(grant) else { continue }
                    // Names of another form are somebody's own, unless they are a document's.
                    if state.documents[key.id] != nil || DocumentNames.isID(key.id) { state.set(grant, for: key) }
                }
            }
            guard let kept else {
                say(
                    .notice,
                    "there is no permission store: documents are kept as grants alone, and those that are made now end with the session")
                adopt(grants)
                return []
            }
            try removeLeftovers(grants, Set(kept.map(\.id)))
            for document in kept { settle(document) }
            return kept.map(\.id).filter { id in state.withLock { $0.host(id) == nil } }
        }
    }

    /// What the permission store has; nil where there is none.
    private func kept() -> [Document]? {
        do throws(BusError) {
            var result: [Document] = []
            for id in try permissions.list() where DocumentNames.isStoredID(id) {
                if let document = try permissions.document(id) { result.append(document) }
            }
            return result
        } catch {
            if !error.isAbsence { say(.warning, "the permission store does not answer: \(error.text)") }
            return nil
        }
    }

    /// Without a permission store the grants say which documents there are.
    private func adopt(_ grants: [Grant]) {
        state.withLock { state in
            for grant in grants {
                guard let key = DocumentState.Key(grant), key.app.isEmpty, DocumentNames.isID(key.id) else { continue }
                state.set(
                    Document(
                        id: key.id, path: grant.bookmark.path, device: 0, inode: 0,
                        flags: grant.bookmark.document == nil ? .directory : []))
            }
            for grant in grants {
                guard let key = DocumentState.Key(grant), !key.app.isEmpty, isActive(grant) else { continue }
                state.set(grant.access == .readWrite ? [.read, .write] : .read, of: key.app, for: key.id)
            }
        }
    }

    /// Forgets grants of documents that have ended: transient ones of a session before, and what was taken out of the permission store meanwhile.
    private func removeLeftovers(_ grants: [Grant], _ ids: Set<String>) throws(GrantError) {
        let left = grants.filter { DocumentNames.isID($0.name.description) && !ids.contains($0.name.description) }
        guard !left.isEmpty else { return }
        _ = try administrator.remove(left, timeout: timeout)
        state.withLock { state in for grant in left { DocumentState.Key(grant).map { state.set(nil, for: $0) } } }
        say(.info, "\(left.count) grants of documents that have ended were removed")
    }

    /// Makes a document's grants and permissions agree, by taking away alone.
    private func settle(_ document: Document) {
        let keys = state.withLock { $0.keys(of: document.id) }
        for app in Set(document.permissions.keys).union(keys.map(\.app)) where !app.isEmpty {
            let grant = state.withLock { $0.grants[DocumentState.Key(app: app, id: document.id)] }
            let permissions = document.permissions[app] ?? []
            // A document that has never been shown by this program is taken over with all its permissions.
            guard grant != nil || state.withLock({ $0.host(document.id) != nil }) else { continue }
            var left = permissions
            if !isActive(grant) { left = [] } else if grant?.access == .readOnly { left.remove(.write) }
            do throws(PortalError) {
                if isActive(grant), grant?.access != Self.access(left) { try adjust(document.id, app, to: Self.access(left)) }
                if left != permissions {
                    state.withLock { $0.set(left, of: app, for: document.id) }
                    try store(left, of: app, for: document.id)
                    say(.notice, "document \(document.id): \(app) loses permissions whose grant was withdrawn")
                }
            } catch {
                say(.warning, "document \(document.id), \(app): \(error.message)")
            }
        }
    }

    /// Makes grants of a document that was there before this program, when what stands at its path lies where it lay then.
    func takeOver(_ id: String) {
        // Where it lies may not answer: others change documents meanwhile.
        guard let document = notTakenOver(id) else { return }
        do throws(PortalError) {
            guard let file = find(document) else { throw PortalError(.notFound, "it is not where it was when it was made") }
            let proposal = try propose(file)
            try changing { () throws(PortalError) in
                // With the permissions that it has by now.
                guard let document = notTakenOver(id) else { return }
                try grant(document, proposal)
                say(.notice, "document \(id) was there before and is taken over: \(VisibleText.of(proposal.bookmark.path))")
            }
        } catch {
            say(.warning, "document \(id), \(VisibleText.of(document.path)), cannot be taken over: \(error.message)")
        }
    }

    private func notTakenOver(_ id: String) -> Document? { state.withLock { state in state.host(id) == nil ? state.documents[id] : nil } }

    private func grant(_ document: Document, _ proposal: GrantAdministrator.Proposal) throws(PortalError) {
        let name = try Self.name(document.id)
        var choices = [GrantAdministrator.Choice(proposal, name: name, view: DocumentNames.host, access: .readWrite)]
        for (app, permissions) in document.permissions {
            guard let view = DocumentNames.view(of: app), let access = Self.access(permissions),
                state.withLock({ $0.grants[DocumentState.Key(app: app, id: document.id)] == nil })
            else { continue }
            choices.append(GrantAdministrator.Choice(proposal, name: name, view: view, access: access))
        }
        do throws(GrantError) {
            for change in try administrator.grant(choices, timeout: timeout) {
                guard let key = DocumentState.Key(change.grant) else { continue }
                state.withLock { $0.set(change.grant, for: key) }
            }
        } catch {
            throw PortalError(error)
        }
    }

    /// What the document is of, by what the permission store says: the path, and the directory that it led through. That is what the desktop's portal goes by as well.
    private func find(_ document: Document) -> GivenFile? {
        let isDirectory = document.flags.contains(.directory)
        let directory = isDirectory ? document.path : CanonicalPath.parent(of: document.path)
        guard let place = FileTranslation.open(directory), let status = try? place.descriptor.status(),
            UInt64(truncatingIfNeeded: status.st.st_dev) == document.device, UInt64(truncatingIfNeeded: status.st.st_ino) == document.inode,
            let host = FileTranslation.open(document.path), let own = try? host.descriptor.status(),
            own.st.st_mode & S_IFMT == (isDirectory ? S_IFDIR : S_IFREG)
        else { return nil }
        return GivenFile(host: host, status: own, path: document.path, isWritable: false)
    }

    /// The end of the session: what was made for it alone is withdrawn and forgotten.
    func endSession() {
        changing {
            let grants = state.withLock { state in
                state.documents.values.filter(\.isTransient).flatMap { document in
                    state.keys(of: document.id).compactMap { state.grants[$0] }
                }
            }
            guard !grants.isEmpty else { return }
            do throws(GrantError) {
                _ = try administrator.remove(grants, timeout: timeout)
            } catch {
                say(.warning, "documents of this session could not be withdrawn: \(error)")
            }
        }
    }
}
