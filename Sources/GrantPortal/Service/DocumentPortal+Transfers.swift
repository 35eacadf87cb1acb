import GrantAdministration
import GrantModel
import GrantSystem

// org.freedesktop.portal.FileTransfer.
extension DocumentPortal {
    func transferResult(of call: BusCall, _ caller: Caller, _ bus: BusService) throws(PortalError) -> (types: String, values: [BusValue]) {
        let given = call.arguments
        switch (call.member, given.count) {
        case ("StartTransfer", 1):
            let key = try transfers.start(
                by: caller, isWritable: given[0].option("writable")?.bool ?? false, endsWhenTaken: given[0].option("autostop")?.bool ?? true
            )
            // When the caller has gone meanwhile, `endAll` has run already and would miss this one.
            guard connections.time(of: caller.name) != nil else {
                _ = transfers.end(key)
                throw PortalError(.failed, "The caller has gone")
            }
            return ("s", [.text(key)])
        case ("AddFiles", 3):
            guard let key = given[0].text, let descriptors = given[1].list?.compactMap(\.descriptor) else { break }
            try hold(descriptors, in: try transfers.transfer(key, of: caller.name), caller)
            return ("", [])
        case ("RetrieveFiles", 2):
            guard let key = given[0].text else { break }
            // Of two who take it at the same time the second finds nothing any more.
            let transfer = try transfers.take(key)
            defer { if transfer.endsWhenTaken { tellEnd(of: transfer, bus) } }
            return ("as", [.texts(try take(transfer, for: caller))])
        case ("StopTransfer", 1):
            guard let key = given[0].text else { break }
            end(try transfers.transfer(key), bus)
            return ("", [])
        default: break
        }
        throw PortalError.arguments
    }

    private func hold(_ given: [GivenDescriptor], in transfer: FileTransfers.Transfer, _ caller: Caller) throws(PortalError) {
        let refusal = PortalError(.notAllowed, "Can't export file")
        var files: [Documents.Addition] = []
        for descriptor in given {
            do throws(PortalError) {
                let file = try addition(descriptor, .any, caller, takesOpenFiles: true)
                let isWritable =
                    switch file {
                    case .file(let file): file.isWritable
                    case .document(let source): documents.permissions(of: caller, by: source).contains(.write)
                    }
                guard isWritable || !transfer.isWritable else { throw refusal }
                files.append(file)
            } catch {
                throw refusal
            }
        }
        try transfers.add(files, to: transfer.key)
    }

    private func end(_ transfer: FileTransfers.Transfer, _ bus: BusService) {
        if transfers.end(transfer.key) { tellEnd(of: transfer, bus) }
    }

    private func tellEnd(of transfer: FileTransfers.Transfer, _ bus: BusService) {
        bus.tell(
            transfer.owner.name, path: Self.object, interface: Self.transferInterface, signal: "TransferClosed", "s", [.text(transfer.key)])
    }

    /// The paths under which the caller reaches the files: those of the host for the owner, those of documents for an application.
    private func take(_ transfer: FileTransfers.Transfer, for caller: Caller) throws(PortalError) -> [String] {
        let places = transfer.files.map { file in
            switch file {
            // Wherever it is by now.
            case .file(let file): (try? file.host.descriptor.path()) ?? file.path
            case .document(let source): documents.state.withLock { $0.path(of: source.id) } ?? []
            }
        }
        guard let app = caller.app else { return try texts(places) }
        var permissions: Permissions = .read
        if transfer.isWritable { permissions.insert(.write) }
        var paths: [[UInt8]] = []
        for (file, place) in zip(transfer.files, places) {
            var flags: AddFlags = [.reuseExisting, .asNeededByApp]
            if case .file(let file) = file, file.isDirectory { flags.insert(.exportDirectory) }
            let wish = Documents.Wish(flags: flags, app: app, permissions: permissions, caller: transfer.owner)
            let id = try documents.add([file], wish).first ?? ""
            guard !id.isEmpty, let name = documents.fileName(of: id) else {
                paths.append(place)
                continue
            }
            paths.append(CanonicalPath.join(CanonicalPath.join(mount.path, Array(id.utf8)), name))
        }
        return try texts(paths)
    }

    /// A path that is not UTF-8 cannot be told in this interface.
    private func texts(_ paths: [[UInt8]]) throws(PortalError) -> [String] {
        var result: [String] = []
        for path in paths {
            guard let text = String(validating: path, as: UTF8.self), !path.isEmpty else {
                let text = "a file's path is not UTF-8, which this interface cannot carry"
                throw PortalError(.failed, text, outside: text)
            }
            result.append(text)
        }
        return result
    }
}
