import GrantSystem

/// The table of documents in org.freedesktop.impl.portal.PermissionStore, which Flatpak's commands read and change.
struct PermissionStore: Sendable {
    static let service = "org.freedesktop.impl.portal.PermissionStore"
    static let object = "/org/freedesktop/impl/portal/PermissionStore"
    static let table = "documents"

    let bus: BusClient
    private let own: OwnDocuments
    private let histories = PermissionHistories()

    init(own: OwnDocuments) {
        self.own = own
        // By the same connection as the answers, so that changes and answers come in the order in which the permission store made them.
        bus = BusClient(
            hears: BusClient.Signal(
                service: Self.service, path: Self.object, interface: Self.service, member: "Changed", argument: Self.table
            ) { [histories] values in Self.hear(values, histories) })
    }

    /// Reads what the permission store has announced since the last question. The bus would keep all of it until the next one.
    func hear() { bus.receive() }

    /// Returns the ids of all documents. There are none if nothing was ever kept.
    func list() throws(BusError) -> [String] {
        do throws(BusError) {
            return try call("List", "s", [.text(Self.table)]).first?.texts ?? []
        } catch {
            if error.isUnknownEntry { return [] }
            throw error
        }
    }

    /// Returns nil when there is no such document, or when its entry cannot be read or makes no
    /// sense.
    func document(_ id: String) throws(BusError) -> Document? {
        do throws(BusError) {
            let answer = try call("Lookup", "ss", [.text(Self.table), .text(id)])
            guard answer.count == 2 else { return nil }
            return Self.document(id, permissions: answer[0], data: answer[1])
        } catch {
            if error.isUnknownEntry || error.isUnreadable { return nil }
            throw error
        }
    }

    /// Writes a document's entry. Before that the document is noted as this program's own.
    func set(_ document: Document) throws(BusError) {
        do throws(Errno) {
            try own.add([document.id])
        } catch {
            throw BusError(name: "", text: "that the document is kept cannot be noted: \(error)")
        }
        // (ayttu): as version 1.16 of xdg-document-portal writes it, and every later one reads it.
        let data: BusValue = .list([
            .path(document.path), .unsigned(document.device), .unsigned(document.inode), .number(document.flags.rawValue),
        ])
        let permissions: BusValue = .list(document.permissions.map { .pair(.text($0.key), .texts($0.value.words)) })
        _ = try call(
            "Set", "sbsa{sas}v",
            [.text(Self.table), .bool(true), .text(document.id), permissions, .variant(signature: "(ayttu)", data)])
    }

    /// Reads an application's permissions, and follows their changes from this answer on until
    /// `endFollowing`. Returns nil when there is no such document.
    func follow(_ key: DocumentState.Key) throws(BusError) -> PermissionHistory? {
        guard let document = try document(key.id) else { return nil }
        return histories.follow(key, document.permissions[key.app] ?? [])
    }

    /// Writes permissions that are followed. An application without permissions leaves the
    /// document's list. Returns their history, which also has the permissions that this write has
    /// overwritten if others have changed them meanwhile. It returns nil if the document no longer
    /// exists.
    func set(_ permissions: Permissions, of key: DocumentState.Key) throws(BusError) -> PermissionHistory? {
        let changes = histories.history(of: key)?.changes
        do throws(BusError) {
            _ = try call(
                "SetPermission", "sbssas",
                [.text(Self.table), .bool(false), .text(key.id), .text(key.app), .texts(permissions.words)])
        } catch {
            if error.isUnknownEntry { return nil }
            throw error
        }
        // It announces the change before it answers. If it has not, it is asked, and has announced the change before it answers that.
        guard let history = histories.history(of: key), history.changes != changes else { return try follow(key) }
        return history
    }

    func endFollowing(_ key: DocumentState.Key) { histories.end(key) }

    /// Ends the following of all permissions of the document.
    func endFollowing(_ id: String) { histories.end(id) }

    /// Reads a signal of the permission store: table, id, whether the entry was deleted, data,
    /// permissions. Unreadable permissions count as none.
    private static func hear(_ values: [BusValue], _ histories: PermissionHistories) {
        guard values.count >= 2, values[0].text == table, let id = values[1].text else { return }
        let isThere = values.count == 5 && values[2].bool == false
        histories.hear(id, isThere ? permissions(values[4]) : [:])
    }

    func delete(_ id: String) throws(BusError) {
        do throws(BusError) {
            _ = try call("Delete", "ss", [.text(Self.table), .text(id)])
        } catch {
            if !error.isUnknownEntry { throw error }
        }
    }

    private func call(_ member: String, _ types: String, _ arguments: [BusValue]) throws(BusError) -> [BusValue] {
        try bus.call(Self.service, Self.object, Self.service, member, types, arguments)
    }

    /// The data of later versions has more behind it, which is left alone.
    private static func document(_ id: String, permissions: BusValue, data: BusValue) -> Document? {
        guard let parts = data.variant?.list, parts.count >= 4, let path = parts[0].path, path.first == 0x2F,
            let device = parts[1].unsigned, let inode = parts[2].unsigned,
            let flags = parts[3].unsigned.flatMap({ UInt32(exactly: $0) })
        else { return nil }
        var document = Document(id: id, path: path, device: device, inode: inode, flags: DocumentFlags(rawValue: flags))
        document.permissions = Self.permissions(permissions)
        return document
    }

    private static func permissions(_ value: BusValue) -> [String: Permissions] {
        var result: [String: Permissions] = [:]
        for case .pair(.text(let app), let words) in value.list ?? [] {
            let known = Permissions(stored: words.texts ?? [])
            if DocumentNames.isApp(app), !known.isEmpty { result[app] = known }
        }
        return result
    }
}

extension BusError {
    /// There is no such table, or no such entry in it.
    fileprivate var isUnknownEntry: Bool { name == PortalError.Kind.notFound.rawValue }
}
