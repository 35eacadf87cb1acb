import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

extension Documents {
    /// Reads both stores, and makes the grants agree with the permission store: of a permission and
    /// a grant the narrower one applies. Nothing is granted. Returns the ids of documents that
    /// existed before this program, for `takeOver`. It returns nil if the permission store does not
    /// answer. Then the permissions are unknown, and the caller tries again.
    func load() throws(GrantError) -> [String]? {
        try changingUnlessHandedOver { () throws(GrantError) -> [String]? in
            state.withLock { $0.isUnread = true }
            do throws(Errno) {
                try own.read()
            } catch {
                throw GrantError(
                    .system, "which documents there are cannot be read in \(administrator.store.directory)", cause: error.description)
            }
            try readGrants()
            let kept: [Document]?
            do throws(BusError) {
                kept = try readAll()
            } catch {
                if !isSilent.exchange(true, ordering: .relaxed) {
                    say(.warning, "the permission store does not answer, and nothing is granted until it does: \(error.text)")
                }
                return nil
            }
            // A permission store that was running before comes back.
            if kept == nil, state.withLock({ $0.hasStore }) { return nil }
            // Read after the permission store. So a document that is noted as this program's own and has no grant here was removed.
            let grants = try administrator.store.grants().filter { DocumentState.Key($0) != nil }
            let missing = if let kept { try take(kept, grants) } else { try adopt(grants) }
            state.withLock { $0.isUnread = false }
            isSilent.store(false, ordering: .relaxed)
            return missing
        } ?? nil
    }

    /// Whether something is still to be read from the permission store, or to be written to it.
    var isBehind: Bool { state.withLock { $0.isUnread || !$0.unwritten.isEmpty || !$0.undeleted.isEmpty } }

    /// Returns all entries of the permission store, or nil if there is no permission store.
    private func readAll() throws(BusError) -> [Document]? {
        let ids: [String]
        do throws(BusError) {
            ids = try permissions.list()
        } catch {
            if error.isAbsence { return nil }
            throw error
        }
        var result: [Document] = []
        for id in ids where DocumentNames.isStoredID(id) {
            if let document = try permissions.document(id) { result.append(document) }
        }
        return result
    }

    private func take(_ kept: [Document], _ grants: [Grant]) throws(GrantError) -> [String] {
        guard state.withLock({ $0.hasStore }) else { return try agree(grants, with: kept) }
        // It was read before. Only later changes are followed.
        let stored = Dictionary(kept.map { ($0.id, $0) }) { $1 }
        var new: [String] = []
        for id in state.withLock({ Set($0.documents.keys).union($0.undeleted) }).union(stored.keys).sorted() {
            do throws(PortalError) {
                if try follow(id, stored[id]) { new.append(id) }
            } catch {
                say(.warning, "document \(id): \(error.message)")
            }
        }
        return new
    }

    private func agree(_ grants: [Grant], with kept: [Document]) throws(GrantError) -> [String] {
        let shown = Set(grants.compactMap { DocumentState.Key($0) }.filter(\.app.isEmpty).map(\.id))
        let removed = Set(kept.map(\.id).filter { own.contains($0) && !shown.contains($0) })
        let ids = Set(kept.map(\.id)).subtracting(removed)
        let ended = state.withLock { state in
            state.hasStore = true
            let ended = removed.union(state.documents.values.filter { !$0.isTransient && !ids.contains($0.id) }.map(\.id))
            for id in ended { state.forget(id) }
            for document in kept where ids.contains(document.id) { state.set(document) }
            return ended
        }
        for id in ended { permissions.endFollowing(id) }
        let stay = state.withLock { ids.union($0.documents.values.filter(\.isTransient).map(\.id)) }
        try removeLeftovers(grants, stay, ended)
        set(grants)
        note(ids.intersection(shown))
        for id in removed.sorted() {
            do throws(BusError) {
                try erase(id)
                say(.notice, "document \(id) is forgotten: its grant was removed")
            } catch {
                say(.warning, "document \(id): the permission store has not forgotten it: \(error.text)")
            }
        }
        for document in kept where ids.contains(document.id) { settle(document) }
        return ids.filter { id in state.withLock { $0.host(id) == nil } }.sorted()
    }

    private func set(_ grants: [Grant]) {
        state.withLock { state in
            // Others may have grants of their own in these views. Those whose names are not
            // documents' are left alone.
            for grant in grants { if let key = DocumentState.Key(grant), state.documents[key.id] != nil { state.set(grant, for: key) } }
        }
    }

    /// Without a permission store the grants say which documents there are, except transient ones that a killed service has left.
    private func adopt(_ grants: [Grant]) throws(GrantError) -> [String] {
        say(
            .notice,
            "there is no permission store: documents are kept as grants alone, and those that are made now end with the session")
        let hosts = grants.filter { grant in DocumentState.Key(grant).map { $0.app.isEmpty && own.contains($0.id) } ?? false }
        try removeLeftovers(grants, Set(hosts.map(\.name.description)), [])
        state.withLock { state in
            for grant in hosts {
                state.set(
                    Document(
                        id: grant.name.description, path: grant.bookmark.path, device: 0, inode: 0,
                        flags: grant.bookmark.document == nil ? .directory : []))
            }
        }
        set(grants)
        state.withLock { state in
            for grant in grants {
                guard let key = DocumentState.Key(grant), !key.app.isEmpty, isActive(grant) else { continue }
                state.set(grant.access == .readWrite ? [.read, .write] : .read, of: key.app, for: key.id)
            }
        }
        return []
    }

    /// Forgets grants of documents that have ended: transient ones of an earlier session, and
    /// documents removed from the permission store meanwhile.
    private func removeLeftovers(_ grants: [Grant], _ ids: Set<String>, _ ended: Set<String>) throws(GrantError) {
        let left = grants.filter { grant in
            let name = grant.name.description
            return ended.contains(name) || DocumentNames.isID(name) && !ids.contains(name)
        }
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
                    try write(left, insteadOf: permissions, of: app, for: document.id)
                    say(.notice, "document \(document.id): \(app) loses permissions whose grant was withdrawn")
                }
            } catch {
                say(.warning, "document \(document.id), \(app): \(error.message)")
            }
        }
    }

    /// Makes grants of a document that existed before this program, if the file at its path is
    /// where it was then.
    func takeOver(_ id: String) {
        // Its filesystem may hang. So the search for the file runs without the right to change,
        // which others use meanwhile.
        guard let document = notTakenOver(id) else { return }
        do throws(PortalError) {
            guard let file = find(document) else { throw PortalError(.notFound, "it is not where it was when it was made") }
            let proposal = try propose(file)
            try changing { () throws(PortalError) in
                // Its permissions may have changed meanwhile.
                guard let document = notTakenOver(id) else { return }
                try grant(document, proposal)
                note([id])
                say(.notice, "document \(id) is taken over from the earlier portal: \(VisibleText.of(proposal.bookmark.path))")
            }
        } catch {
            say(.warning, "document \(id), \(VisibleText.of(document.path)), cannot be taken over: \(error.message)")
        }
    }

    private func notTakenOver(_ id: String) -> Document? {
        guard !own.contains(id) else { return nil }
        return state.withLock { state in state.host(id) == nil ? state.documents[id] : nil }
    }

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

    /// Finds the document's file by its entry in the permission store: its path, and the device and
    /// inode of its directory. The desktop's portal does the same.
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

    /// Withdraws and forgets the grants made for this session alone. The right to change is held.
    func endSession() {
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
