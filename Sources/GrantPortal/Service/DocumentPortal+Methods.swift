import GrantModel
import GrantSystem

// The methods: their arguments and their results.
extension DocumentPortal {
    func answer(_ call: BusCall, _ bus: BusService) {
        do throws(PortalError) {
            let (types, values) = try result(of: call, bus)
            bus.reply(to: call, types, values)
        } catch {
            bus.refuse(call, error)
        }
    }

    private typealias Result = (types: String, values: [BusValue])

    private func result(of call: BusCall, _ bus: BusService) throws(PortalError) -> Result {
        // The mount's path is not a secret, so the caller need not be identified.
        if call.member == "GetMountPoint" { return ("ay", [.path(mount.path)]) }
        let caller = try callers.identify(call.sender)
        do throws(PortalError) {
            return try result(of: call, caller, bus)
        } catch {
            guard let app = caller.app else { throw error }
            if error.outside != error.message { documents.say(.info, "\(app), \(call.member): \(error.message)") }
            throw error.forApplications
        }
    }

    private func result(of call: BusCall, _ caller: Caller, _ bus: BusService) throws(PortalError) -> Result {
        let given = call.arguments
        switch (call.member, given.count) {
        case ("Add", 3):
            guard let descriptor = given[0].descriptor, let reuses = given[1].bool, let persists = given[2].bool else { break }
            let ids = try add([descriptor], Documents.Wish(flags: Self.flags(reuses, persists), caller: caller))
            return ("s", [.text(ids.first ?? "")])
        case ("AddFull", 4):
            guard let descriptors = given[0].list?.compactMap(\.descriptor) else { break }
            let ids = try add(descriptors, wish(given[1], given[2], given[3], caller))
            return ("asa{sv}", [.texts(ids), extra])
        case ("AddNamed", 4):
            guard let directory = given[0].descriptor, let reuses = given[2].bool, let persists = given[3].bool else { break }
            let wish = Documents.Wish(flags: Self.flags(reuses, persists), caller: caller)
            return ("s", [.text(try addNamed(directory, given[1], wish))])
        case ("AddNamedFull", 5):
            guard let directory = given[0].descriptor else { break }
            let id = try addNamed(directory, given[1], wish(given[2], given[3], given[4], caller))
            return ("sa{sv}", [.text(id), extra])
        case ("GrantPermissions", 3), ("RevokePermissions", 3):
            guard let id = given[0].text, let app = given[1].text, let words = given[2].texts else { break }
            try change(id, app, words, caller, gives: call.member == "GrantPermissions")
            return ("", [])
        case ("Delete", 1):
            guard let id = given[0].text else { break }
            try delete(id, caller)
            return ("", [])
        case ("Lookup", 1):
            guard caller.isOwner else { throw PortalError.notInSandbox }
            guard let path = given[0].path else { break }
            return ("s", [.text(try lookup(path, caller) ?? "")])
        case ("Info", 1):
            guard caller.isOwner else { throw PortalError.notInSandbox }
            guard let id = given[0].text else { break }
            return try info(id)
        case ("List", 1):
            guard caller.isOwner else { throw PortalError.notInSandbox }
            guard let app = given[0].text else { break }
            return ("a{say}", [list(of: app)])
        case ("GetHostPaths", 1):
            guard let ids = given[0].texts else { break }
            return ("a{say}", [paths(of: ids, caller)])
        default: return try transferResult(of: call, caller, bus)
        }
        throw PortalError.arguments
    }

    private static func flags(_ reuses: Bool, _ persists: Bool) -> AddFlags {
        var flags: AddFlags = []
        if reuses { flags.insert(.reuseExisting) }
        if persists { flags.insert(.persistent) }
        return flags
    }

    private func wish(_ flags: BusValue, _ app: BusValue, _ words: BusValue, _ caller: Caller) throws(PortalError) -> Documents.Wish {
        guard let number = flags.unsigned.flatMap({ UInt32(exactly: $0) }), let app = app.text, let words = words.texts else {
            throw PortalError.arguments
        }
        guard number & ~AddFlags.all.rawValue == 0 else { throw PortalError(.invalidArgument, "Invalid flags") }
        guard app.isEmpty || DocumentNames.isApp(app) else { throw PortalError(.invalidArgument, "'\(app)' is not a valid app name") }
        return Documents.Wish(
            flags: AddFlags(rawValue: number), app: app, permissions: try Permissions(asked: words), caller: caller)
    }

    private var extra: BusValue { .list([.pair(.text("mountpoint"), .variant(signature: "ay", .path(mount.path)))]) }

    private func change(_ id: String, _ app: String, _ words: [String], _ caller: Caller, gives: Bool) throws(PortalError) {
        try documents.changing { () throws(PortalError) in
            guard documents.state.withLock({ $0.documents[id] != nil }) else { throw PortalError.noDocument(id) }
            guard DocumentNames.isApp(app) else { throw PortalError(.invalidArgument, "'\(app)' is not a valid app name") }
            let asked = try Permissions(asked: words)
            if gives { return try give(asked, of: id, to: app, caller) }
            do throws(PortalError) {
                // So that what others gave a moment ago is taken away as well.
                try documents.catchUp(with: [id])
            } catch {
                // An application that may have lost the document must not take it from others. The owner, and an application that gives up its own, need no answer.
                if !caller.isOwner, app != caller.app { throw error }
            }
            guard documents.state.withLock({ $0.documents[id] != nil }) else { throw PortalError.noDocument(id) }
            guard documents.permissions(of: caller, by: DocumentSource(id: id, app: "")).contains(.grant) || app == caller.app else {
                throw PortalError.notAllowed
            }
            try documents.set(documents.recorded(of: app, for: id).subtracting(asked), of: app, for: id)
        }
    }

    /// The right to change is held.
    private func give(_ asked: Permissions, of id: String, to app: String, _ caller: Caller) throws(PortalError) {
        try documents.catchUp(with: [id])
        guard documents.state.withLock({ $0.documents[id] != nil }) else { throw PortalError.noDocument(id) }
        let source = DocumentSource(id: id, app: "")
        // A caller gives only what it has itself.
        let needed = asked.union(.grant)
        guard documents.permissions(of: caller, by: source).isSuperset(of: needed) else { throw PortalError.notAllowed }
        try documents.require(receiver: app, of: id, caller)
        let old = documents.recorded(of: app, for: id)
        do throws(PortalError) {
            try documents.set(old.union(asked), of: app, for: id)
            // An application that lost the document while it gave it on has given nothing on. The owner cannot lose it.
            if !caller.isOwner {
                try documents.catchUp(with: [id])
                guard documents.permissions(of: caller, by: source).isSuperset(of: needed) else { throw PortalError.notAllowed }
            }
        } catch {
            // A call that fails gives nothing, and leaves nothing to be written later.
            try? documents.set(documents.recorded(of: app, for: id).subtracting(asked.subtracting(old)), of: app, for: id)
            throw error
        }
    }

    private func delete(_ id: String, _ caller: Caller) throws(PortalError) {
        try documents.changing { () throws(PortalError) in
            if !caller.isOwner { try documents.catchUp(with: [id]) }
            guard documents.state.withLock({ $0.documents[id] != nil }) else { throw PortalError.noDocument(id) }
            guard documents.permissions(of: caller, by: DocumentSource(id: id, app: "")).contains(.delete) else {
                throw PortalError.notAllowed
            }
            try documents.drop(id, inStore: true)
        }
    }

    private func info(_ id: String) throws(PortalError) -> Result {
        let found = documents.state.withLock { state in state.documents[id].map { ($0, state.path(of: id) ?? $0.path) } }
        // The name of the error is that of the existing portal, which programs expect.
        guard let (document, path) = found else { throw PortalError(.invalidArgument, "Invalid ID passed") }
        let apps = document.permissions.sorted { $0.key < $1.key }
        return ("aya{sas}", [.path(path), .list(apps.map { .pair(.text($0.key), .texts($0.value.words)) })])
    }

    private func list(of app: String) -> BusValue {
        documents.state.withLock { state in
            let those = state.documents.values.filter { app.isEmpty || $0.permissions[app] != nil }.sorted { $0.id < $1.id }
            return .list(those.map { .pair(.text($0.id), .path(state.path(of: $0.id) ?? $0.path)) })
        }
    }

    /// Documents without a permission of the caller are omitted, like those that do not exist.
    private func paths(of ids: [String], _ caller: Caller) -> BusValue {
        var seen: Set<String> = []
        return .list(
            ids.compactMap { id in
                guard seen.insert(id).inserted, !documents.permissions(of: caller, by: DocumentSource(id: id, app: "")).isEmpty,
                    let path = documents.state.withLock({ state in state.documents[id].map { state.path(of: id) ?? $0.path } })
                else { return nil }
                return .pair(.text(id), .path(path))
            })
    }
}
