import GrantAdministration
import GrantModel
import GrantSystem

extension Documents {
    /// A file that will become a document, or is one.
    enum Addition: Sendable {
        case file(GivenFile)
        case document(DocumentSource)
    }

    /// The recipients of new documents, and the kind of documents.
    struct Wish: Sendable {
        var flags: AddFlags
        /// The application that is to have them, or empty for none.
        var app = ""
        var permissions: Permissions = []
        let caller: Caller
    }

    /// The data of a file, found while others may change documents: its filesystem may take long,
    /// or for ever.
    private struct Inspection {
        let addition: Addition
        var proposal: GrantAdministrator.Proposal?
        /// The directory that the permission store is told of.
        var place: FileStatus?
    }

    /// All changes to make, found before the first change.
    private struct Plan {
        var ids: [String] = []
        var new: [(document: Document, proposal: GrantAdministrator.Proposal)] = []
        /// Permissions for documents that existed before.
        var more: [(id: String, app: String, permissions: Permissions)] = []
        /// What the caller must have for it.
        var needs: [(source: DocumentSource, permissions: Permissions)] = []
    }

    /// Adds documents for all of the files, or throws and adds none. Returns their ids in the order
    /// of the files. The id is empty for a file that the application reaches without a document.
    func add(_ additions: [Addition], _ wish: Wish) throws(PortalError) -> [String] {
        var inspections: [Inspection] = []
        for addition in additions { inspections.append(try look(at: addition, wish)) }
        return try changing { () throws(PortalError) in
            try catchUp(with: documents(of: inspections))
            let plan = try plan(inspections, wish)
            try make(plan.new, by: wish.caller.app)
            var before: [Permissions] = []
            do throws(PortalError) {
                for addition in plan.more {
                    let old = recorded(of: addition.app, for: addition.id)
                    before.append(old)
                    try set(old.union(addition.permissions), of: addition.app, for: addition.id)
                }
                // A caller that lost the document while it gave it on has given nothing on.
                if !plan.needs.isEmpty {
                    try catchUp(with: Set(plan.needs.map(\.source.id)))
                    try require(plan.needs, wish.caller)
                }
            } catch {
                for (addition, old) in zip(plan.more, before).reversed() {
                    let now = recorded(of: addition.app, for: addition.id)
                    try? set(now.subtracting(addition.permissions.subtracting(old)), of: addition.app, for: addition.id)
                }
                for (document, _) in plan.new { try? drop(document.id, inStore: true) }
                throw error
            }
            return plan.ids
        }
    }

    /// What an application may do at this moment: nothing when its grant is not active, because it has expired, was revoked, or is without the permission to read.
    func permissions(of app: String, for id: String) -> Permissions {
        let recorded = recorded(of: app, for: id)
        return recorded.contains(.read) && isActive(grant(of: app, for: id)) ? recorded : []
    }

    /// Returns the application's permissions, which a change keeps. They are empty once the grant
    /// has expired, so that a change does not restore them.
    func recorded(of app: String, for id: String) -> Permissions {
        isExpired(grant(of: app, for: id)) ? [] : state.withLock { $0.documents[id]?.permissions[app] } ?? []
    }

    private func grant(of app: String, for id: String) -> Grant? { state.withLock { $0.grants[DocumentState.Key(app: app, id: id)] } }

    private func isExpired(_ grant: Grant?) -> Bool { grant?.state(at: Instant(nanoseconds: Clock.realtime)) == .expired }

    /// The permissions that a caller has of a document: of its own, or of that in an application's part of the mount. The owner has all of them.
    func permissions(of caller: Caller, by source: DocumentSource) -> Permissions {
        guard source.app.isEmpty else { return permissions(of: source.app, for: source.id) }
        return caller.app.map { permissions(of: $0, for: source.id) } ?? .all
    }

    private func require(_ needs: [(source: DocumentSource, permissions: Permissions)], _ caller: Caller) throws(PortalError) {
        for (source, needed) in needs where !permissions(of: caller, by: source).isSuperset(of: needed) { throw PortalError.notAllowed }
    }

    /// Checks that an application may give the document to `app`. Throws `.notAllowed` when that
    /// one's grant has expired: only the owner may give it again. Throws `.limitsExceeded` when
    /// `app` would be one application too many.
    func require(receiver app: String, of id: String, _ caller: Caller) throws(PortalError) {
        guard !caller.isOwner else { return }
        guard !isExpired(grant(of: app, for: id)) else { throw PortalError.notAllowed }
        let known = Set(
            state.withLock { state in state.keys(of: id).map(\.app) + (state.documents[id]?.permissions.keys.map { $0 } ?? []) })
        guard known.contains(app) || known.count < Self.mostApps else {
            throw PortalError(.limitsExceeded, "Too many applications have the document")
        }
    }

    private func look(at addition: Addition, _ wish: Wish) throws(PortalError) -> Inspection {
        var inspection = Inspection(addition: addition)
        guard case .file(let file) = addition else { return inspection }
        if wish.permissions.contains(.write), !file.isWritable { throw PortalError.notAllowed }
        if wish.flags.contains(.asNeededByApp), !wish.app.isEmpty,
            AppFiles.reaches(wish.app, file.path, writing: wish.permissions.contains(.write))
        {
            return inspection
        }
        inspection.proposal = try propose(file)
        inspection.place = file.isDirectory ? file.status : try parent(of: file)
        return inspection
    }

    /// The existing documents of the given files.
    private func documents(of inspections: [Inspection]) -> Set<String> {
        var ids: Set<String> = []
        for inspection in inspections {
            switch inspection.addition {
            case .document(let source): ids.insert(source.id)
            case .file(let file):
                if let source = file.source { ids.insert(source.id) }
                if let proposal = inspection.proposal { ids.formUnion(state.withLock { $0.documents(of: proposal.bookmark).map(\.id) }) }
            }
        }
        return ids
    }

    private func plan(_ inspections: [Inspection], _ wish: Wish) throws(PortalError) -> Plan {
        var plan = Plan()
        for inspection in inspections {
            switch inspection.addition {
            case .document(let source):
                let (id, own) = (source.id, permissions(of: wish.caller, by: source))
                guard state.withLock({ $0.documents[id] != nil }) else { throw PortalError.noDescriptor }
                // A copy of its own would outlive the withdrawal of the first.
                guard wish.flags.contains(.reuseExisting) else { throw PortalError.noDescriptor }
                var needed = wish.permissions.intersection([.read, .write]).union(.read)
                if !wish.app.isEmpty, !wish.permissions.isEmpty, wish.app != wish.caller.app {
                    needed.formUnion(wish.permissions.union(.grant))
                    try require(receiver: wish.app, of: id, wish.caller)
                    plan.more.append((id, wish.app, wish.permissions))
                }
                guard own.isSuperset(of: needed) else { throw PortalError.notAllowed }
                plan.needs.append((source, needed))
                plan.ids.append(id)
            case .file(let file): try extend(&plan, by: file, inspection, wish)
            }
        }
        return plan
    }

    private func extend(_ plan: inout Plan, by file: GivenFile, _ inspection: Inspection, _ wish: Wish) throws(PortalError) {
        // What counts is what the caller may do with the directory now, not when it held the file out.
        let own = file.source.map { permissions(of: wish.caller, by: $0) } ?? .all
        guard own.contains(.read), !wish.permissions.contains(.write) || own.contains(.write) else { throw PortalError.notAllowed }
        let isWritable = file.isWritable && own.contains(.write)
        if let source = file.source {
            // A document of the file stays when the directory is taken away: making one is giving it on.
            guard own.contains(.grant) else { throw PortalError.notAllowed }
            plan.needs.append((source, isWritable ? [.read, .write, .grant] : [.read, .grant]))
        }
        guard let proposal = inspection.proposal, let place = inspection.place else { return plan.ids.append("") }
        var gets: [String: Permissions] = [:]
        // The permissions an application gets for a file that it adds, and so the most that it can
        // give. The same holds for a caller that gives on a file from an application's part of the
        // mount.
        var most: Permissions = [.read, .grant]
        if isWritable { most.insert(.write) }
        // A document that is not shared may be deleted by the application that made it.
        if isWritable, !wish.flags.contains(.reuseExisting) { most.insert(.delete) }
        if let caller = wish.caller.app, caller != wish.app { gets[caller] = most }
        if wish.caller.isOwner, file.source?.app.isEmpty ?? true { most = .all }
        let given = wish.permissions.intersection(most)
        if !wish.app.isEmpty, !given.isEmpty { gets[wish.app] = given }

        var flags = wish.flags.document
        // Without a permission store no document outlives the session.
        let hasStore = state.withLock { $0.hasStore }
        if !hasStore { flags.insert(.transient) }
        if wish.flags.contains(.reuseExisting) {
            if let known = state.withLock({ $0.documents(of: proposal.bookmark).first { $0.flags == flags } }) {
                plan.ids.append(known.id)
                for (app, permissions) in gets {
                    try require(receiver: app, of: known.id, wish.caller)
                    plan.more.append((known.id, app, permissions))
                }
                return
            }
            let twin = plan.new.first {
                $0.proposal.bookmark.identity == proposal.bookmark.identity
                    && $0.proposal.bookmark.filesystem == proposal.bookmark.filesystem
            }
            if let twin { return plan.ids.append(twin.document.id) }
        }
        if let app = wish.caller.app, state.withLock({ $0.countMade(by: app) }) + plan.new.count >= Self.mostOfAnApp {
            throw PortalError(.limitsExceeded, "The application has made too many documents")
        }
        var id = DocumentNames.random()
        while state.withLock({ $0.documents[id] != nil || $0.host(id) != nil }) || plan.ids.contains(id) { id = DocumentNames.random() }
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
    func make(_ new: [(document: Document, proposal: GrantAdministrator.Proposal)], by app: String?) throws(PortalError) {
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
                for (document, _) in new {
                    state.set(document)
                    if let app { state.set(maker: app, of: document.id) }
                }
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
