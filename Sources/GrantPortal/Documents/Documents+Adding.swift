import GrantAdministration
import GrantModel
import GrantSystem

extension Documents {
    /// What is to become a document, or is one.
    enum Addition: Sendable {
        case file(GivenFile)
        /// What the caller has of it, by the view that he has it from.
        case document(String, Permissions)
    }

    /// For whom documents are made, and how.
    struct Wish: Sendable {
        var flags: AddFlags
        /// The application that is to have them; empty for none.
        var app = ""
        var permissions: Permissions = []
        let caller: Caller
    }

    /// Everything that is to be changed, found before the first change.
    private struct Plan {
        var ids: [String] = []
        var new: [(document: Document, proposal: GrantAdministrator.Proposal)] = []
        /// Permissions that documents get which were there before.
        var more: [(id: String, app: String, permissions: Permissions)] = []
    }

    /// The ids of the documents, in the order of the files; empty for a file that the application reaches without one. All of them, or none and an error.
    func add(_ additions: [Addition], _ wish: Wish) throws(PortalError) -> [String] {
        try changing { () throws(PortalError) in
            let plan = try plan(additions, wish)
            try make(plan.new)
            for addition in plan.more {
                let old = state.withLock { $0.documents[addition.id]?.permissions[addition.app] } ?? []
                try set(old.union(addition.permissions), of: addition.app, for: addition.id)
            }
            return plan.ids
        }
    }

    private func plan(_ additions: [Addition], _ wish: Wish) throws(PortalError) -> Plan {
        var plan = Plan()
        for addition in additions {
            switch addition {
            case .document(let id, let own):
                // A copy of its own would outlive what is taken away of the first.
                guard wish.flags.contains(.reuseExisting) else { throw PortalError.noDescriptor }
                guard own.isSuperset(of: wish.permissions.intersection([.read, .write])) else { throw PortalError.notAllowed }
                if !wish.app.isEmpty, !wish.permissions.isEmpty {
                    guard wish.app == wish.caller.app || own.isSuperset(of: wish.permissions.union(.grant)) else {
                        throw PortalError.notAllowed
                    }
                    if wish.app != wish.caller.app { plan.more.append((id, wish.app, wish.permissions)) }
                }
                plan.ids.append(id)
            case .file(let file): try extend(&plan, by: file, wish)
            }
        }
        return plan
    }

    private func extend(_ plan: inout Plan, by file: GivenFile, _ wish: Wish) throws(PortalError) {
        if wish.permissions.contains(.write), !file.isWritable { throw PortalError.notAllowed }
        if wish.flags.contains(.asNeededByApp), !wish.app.isEmpty,
            AppFiles.reaches(wish.app, file.path, writing: wish.permissions.contains(.write))
        {
            plan.ids.append("")
            return
        }
        var gets: [String: Permissions] = [:]
        if let caller = wish.caller.app, caller != wish.app {
            gets[caller] = [.read, .grant]
            if file.isWritable { gets[caller]?.insert(.write) }
            // One that nobody else is given may be forgotten by whoever made it.
            if file.isWritable, !wish.flags.contains(.reuseExisting) { gets[caller]?.insert(.delete) }
        }
        if !wish.app.isEmpty, !wish.permissions.isEmpty { gets[wish.app] = wish.permissions }

        var flags = wish.flags.document
        // What nobody keeps ends with the session.
        let hasStore = state.withLock { $0.hasStore }
        if !hasStore { flags.insert(.transient) }
        let proposal = try propose(file)
        if wish.flags.contains(.reuseExisting) {
            if let known = state.withLock({ $0.documents(of: proposal.bookmark).first { $0.flags == flags } }) {
                plan.ids.append(known.id)
                for (app, permissions) in gets { plan.more.append((known.id, app, permissions)) }
                return
            }
            let twin = plan.new.first {
                $0.proposal.bookmark.identity == proposal.bookmark.identity
                    && $0.proposal.bookmark.filesystem == proposal.bookmark.filesystem
            }
            if let twin { return plan.ids.append(twin.document.id) }
        }
        var id = DocumentNames.random()
        while state.withLock({ $0.documents[id] != nil || $0.host(id) != nil }) || plan.ids.contains(id) { id = DocumentNames.random() }
        let place = file.isDirectory ? file.status : try parent(of: file)
        plan.ids.append(id)
        plan.new.append(
            (
                Document(
                    id: id, path: file.path, device: UInt64(truncatingIfNeeded: place.st.st_dev),
                    inode: UInt64(truncatingIfNeeded: place.st.st_ino), flags: flags, permissions: gets), proposal
            ))
    }

    /// The bookmark of the very file that the descriptor is of. Nothing is written yet.
    func propose(_ file: GivenFile) throws(PortalError) -> GrantAdministrator.Proposal {
        do throws(GrantError) {
            return try GrantAdministrator.propose(
                directory: Array("/proc/self/fd/\(file.host.descriptor.number)".utf8), name: nil, store: administrator.store.directory,
                document: .directory)
        } catch {
            throw PortalError(error)
        }
    }

    private func parent(of file: GivenFile) throws(PortalError) -> FileStatus {
        guard let directory = FileTranslation.open(CanonicalPath.parent(of: file.path)), let status = try? directory.descriptor.status()
        else {
            throw PortalError.noDescriptor
        }
        return status
    }

    /// Grants the documents to the host and to their applications, all in one step, and writes them into the permission store.
    func make(_ new: [(document: Document, proposal: GrantAdministrator.Proposal)]) throws(PortalError) {
        guard !new.isEmpty else { return }
        var choices: [GrantAdministrator.Choice] = []
        for (document, proposal) in new {
            let name = try Self.name(document.id)
            choices.append(GrantAdministrator.Choice(proposal, name: name, view: DocumentNames.host, access: .readWrite))
            for (app, permissions) in document.permissions {
                guard let view = DocumentNames.view(of: app) else {
                    throw PortalError(.invalidArgument, "'\(app)' is not a valid app name")
                }
                guard let access = Self.access(permissions) else { continue }
                choices.append(GrantAdministrator.Choice(proposal, name: name, view: view, access: access))
            }
        }
        do throws(GrantError) {
            let changes = try administrator.grant(choices, timeout: timeout)
            state.withLock { state in
                for (document, _) in new { state.set(document) }
                for change in changes { if let key = DocumentState.Key(change.grant) { state.set(change.grant, for: key) } }
            }
        } catch {
            throw PortalError(error)
        }
        for (document, _) in new where !document.isTransient {
            do throws(BusError) {
                try permissions.set(document)
            } catch {
                // None of them stays.
                for (document, _) in new { try? drop(document.id, inStore: true) }
                throw PortalError(.failed, "the permission store has not taken the document: \(error.text)")
            }
        }
    }
}
