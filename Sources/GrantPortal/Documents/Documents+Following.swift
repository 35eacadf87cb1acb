import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

// What others change: Flatpak's commands in the permission store, grantfs's in the store of grants.
extension Documents {
    /// Reads the permissions that others have taken from these documents by now, before any of them
    /// is given on. The right to change is held. It throws `.failed` if a store cannot be read:
    /// permissions that may have been taken away are not given.
    func catchUp(with ids: Set<String>) throws(PortalError) {
        do throws(GrantError) {
            let now = try administrator.store.dataVersion()
            if version.withLock({ $0 != now }) { try readGrants() }
        } catch {
            throw PortalError(.failed, "the grants cannot be read: \(error)")
        }
        for id in ids { _ = try readPermissions(of: id) }
    }

    /// The permission store has announced a change of this document. Reads its entry, and makes the
    /// grants agree with that. Returns whether it is a new document, which must be taken over.
    func followPermissions(of id: String) -> Bool {
        changingUnlessHandedOver {
            do throws(PortalError) {
                return try readPermissions(of: id)
            } catch {
                say(.warning, "document \(id): \(error.message)")
                return false
            }
        } ?? false
    }

    /// Reads a document's entry and follows it. Returns whether the document was not known. Throws
    /// `.failed` when the permission store does not answer. The right to change is held.
    private func readPermissions(of id: String) throws(PortalError) -> Bool {
        guard DocumentNames.isStoredID(id), state.withLock({ $0.hasStore }) else { return false }
        let stored: Document?
        do throws(BusError) {
            stored = try permissions.document(id)
        } catch {
            // The document may have changed. It is read later, with all others (`isBehind`).
            state.withLock { $0.isUnread = true }
            throw PortalError(.failed, "the permission store does not answer: \(error.text)")
        }
        return try follow(id, stored)
    }

    /// Makes the grants of a document agree with its entry in the permission store. `stored` is nil
    /// when there is none. Returns whether the document was not known, and must be taken over. The
    /// right to change is held.
    func follow(_ id: String, _ stored: Document?) throws(PortalError) -> Bool {
        switch (state.withLock({ $0.documents[id] }), stored) {
        case (nil, nil): state.withLock { _ = $0.undeleted.remove(id) }
        case (nil, let stored?):
            guard !own.contains(id) else {
                // It was removed, and the permission store has not deleted it yet.
                do throws(BusError) { try erase(id) } catch { throw PortalError(.failed, "the permission store: \(error.text)") }
                return false
            }
            state.withLock { $0.set(stored) }
            return true
        case (let known?, nil):
            if !known.isTransient { try drop(id, inStore: false) }
        case (let known?, let stored?): try follow(known, stored)
        }
        return false
    }

    private func follow(_ known: Document, _ stored: Document) throws(PortalError) {
        var failure: PortalError?
        for app in Set(known.permissions.keys).union(stored.permissions.keys) {
            let new = stored.permissions[app] ?? []
            let old = known.permissions[app] ?? []
            let key = DocumentState.Key(app: app, id: known.id)
            if let unwritten = state.withLock({ $0.unwritten[key] }) {
                do throws(PortalError) { try write(old, insteadOf: unwritten.known, of: app, for: known.id) } catch { failure = error }
                continue
            }
            guard old != new else { continue }
            // A failure with one application must not keep others from losing their permissions.
            do throws(PortalError) { try adjust(known.id, app, to: Self.access(new)) } catch { failure = error }
            state.withLock { $0.set(new, of: app, for: known.id) }
        }
        if let failure { throw failure }
    }

    /// Another program has changed the store of grants. Withdrawn grants lose their permission,
    /// narrowed grants the permission to write. Restored grants get them back.
    func followGrants() {
        _ = changingUnlessHandedOver {
            do throws(GrantError) {
                try readGrants()
            } catch {
                say(.error, "the grants cannot be read: \(error)")
            }
        }
    }

    /// The right to change is held.
    func readGrants() throws(GrantError) {
        // Read first: what changes from here on makes another version, and is read again.
        let number = try administrator.store.dataVersion()
        let grants = try administrator.store.grants()
        version.withLock { $0 = number }
        var now: [DocumentState.Key: Grant] = [:]
        for grant in grants { if let key = DocumentState.Key(grant) { now[key] = grant } }
        let before = state.withLock { $0.grants }
        for key in Set(before.keys).union(now.keys) {
            do throws(PortalError) {
                try follow(key, before[key], now[key])
            } catch {
                say(.warning, "document \(key.id): \(error.message)")
            }
        }
    }

    private func follow(_ key: DocumentState.Key, _ before: Grant?, _ now: Grant?) throws(PortalError) {
        let (isKnown, host) = state.withLock { ($0.documents[key.id] != nil, $0.host(key.id)) }
        guard isKnown else { return }
        if before == nil, let now {
            // Granted by hand: the same document in one more view.
            guard !key.app.isEmpty, let host, host.bookmark.identity == now.bookmark.identity else { return }
        }
        if now == nil, key.app.isEmpty {
            say(.notice, "document \(key.id) is forgotten: its grant was removed")
            return try drop(key.id, inStore: true)
        }
        state.withLock { $0.set(now, for: key) }
        guard !key.app.isEmpty else { return }
        let (old, new) = (isActive(before) ? before?.access : nil, isActive(now) ? now?.access : nil)
        guard old != new else { return }
        let permissions = state.withLock { $0.documents[key.id]?.permissions[key.app] } ?? []
        let wanted: Permissions =
            switch new {
            case nil: []
            case .readOnly: permissions.subtracting(.write).union(.read)
            case .readWrite: permissions.union([.read, .write])
            }
        guard wanted != permissions else { return }
        state.withLock { $0.set(wanted, of: key.app, for: key.id) }
        try write(wanted, insteadOf: permissions, of: key.app, for: key.id)
        say(.info, "document \(key.id): \(key.app) has now: \(wanted.isEmpty ? "nothing" : wanted.words.joined(separator: ", "))")
    }
}
