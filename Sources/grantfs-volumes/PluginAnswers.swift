import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem
import GrantWeb

/// Docker's plugin protocol: a POST for each call, with JSON on both sides.
struct PluginAnswers: Sendable {
    let volumes: Volumes
    /// The user of this process.
    let user: UInt32

    private static let type = "application/vnd.docker.plugins.v1.2+json"

    func answer(_ request: WebRequest) -> WebReply {
        // The socket's mode refuses others already, if the plugin made it.
        guard let user = request.user, user == 0 || user == self.user else { return PluginAnswers.reply(403, "only root may connect") }
        request.admit()
        guard request.method == "POST" else { return PluginAnswers.reply(405, "calls of plugins are POST requests") }
        do throws(GrantError) {
            let result = try result(of: request.path, PluginAnswers.arguments(request.body))
            guard let result else { return PluginAnswers.reply(404, "there is no call “\(Terminal.visible(request.path))”") }
            return PluginAnswers.reply(200, members: result + [("Err", .string(""))])
        } catch {
            // Engines ask so before they make one.
            if error.code != .notFound {
                SystemLog.write(.warning, "\(Terminal.visible(request.path)): \(Terminal.visible(error.description))")
            }
            // Podman takes an answer with status 200 for a success.
            return PluginAnswers.reply(500, error.description)
        }
    }

    /// Returns the members of the answer, or nil if there is no such call.
    private func result(of call: String, _ arguments: JSON) throws(GrantError) -> [(String, JSON)]? {
        switch call {
        case "/Plugin.Activate": return [("Implements", .array([.string("VolumeDriver")]))]
        case "/VolumeDriver.Capabilities": return [("Capabilities", .object([("Scope", .string("local"))]))]
        case "/VolumeDriver.List":
            return [("Volumes", .array(try volumes.names().map { .object(described($0)) }))]
        default: break
        }
        guard ["Create", "Remove", "Mount", "Unmount", "Path", "Get"].contains(where: { call == "/VolumeDriver." + $0 }) else { return nil }
        guard let name = arguments.member("Name")?.stringValue else { throw GrantError(.usage, "the call names no volume") }
        switch call {
        case "/VolumeDriver.Create":
            try volumes.create(name, try PluginAnswers.options(arguments.member("Opts")))
            SystemLog.write(.info, "volume \(name): created")
            return []
        case "/VolumeDriver.Remove":
            if let container = arguments.member("Container")?.stringValue {
                try volumes.end(name, of: container)
            } else {
                try volumes.remove(name)
            }
            SystemLog.write(.info, "volume \(name): removed")
            return []
        case "/VolumeDriver.Mount":
            return [("Mountpoint", .string(try volumes.mount(name, for: try PluginAnswers.id(arguments))))]
        case "/VolumeDriver.Unmount":
            try volumes.unmount(name, for: try PluginAnswers.id(arguments))
            return []
        case "/VolumeDriver.Path":
            return [("Mountpoint", .string(try volumes.place(of: name) ?? ""))]
        default:
            return [("Volume", .object(try described(name) + volumes.description(of: name)))]
        }
    }

    private func described(_ name: String) -> [(String, JSON)] {
        [("Name", .string(name)), ("Mountpoint", .string((try? volumes.place(of: name)) ?? ""))]
    }

    /// Podman gives no id to some calls.
    private static func id(_ arguments: JSON) throws(GrantError) -> String {
        let id = arguments.member("ID")?.stringValue ?? ""
        if id.utf8.count <= 256 { return id }
        throw GrantError(.usage, "the id of a volume's user is too long")
    }

    private static func arguments(_ body: [UInt8]) throws(GrantError) -> JSON {
        if body.isEmpty { return .object([]) }
        if let arguments = JSONReader()?.read(body, most: 1_000), case .object = arguments { return arguments }
        throw GrantError(.usage, "the call has no JSON object")
    }

    /// In the order of their names, as they are compared.
    private static func options(_ json: JSON?) throws(GrantError) -> [(name: String, value: String)] {
        guard let json else { return [] }
        if case .null = json { return [] }
        guard case .object(let members) = json else { throw GrantError(.usage, "the options of a volume are not an object") }
        var options: [(name: String, value: String)] = []
        for (name, value) in members {
            guard let value = value.stringValue else { throw GrantError(.usage, "the option “\(name)” of a volume is not a text") }
            if options.contains(where: { $0.name == name }) { throw GrantError(.usage, "the option “\(name)” is given twice") }
            options.append((name, value))
        }
        return options.sorted { $0.name < $1.name }
    }

    private static func reply(_ status: UInt32, _ error: String) -> WebReply { reply(status, members: [("Err", .string(error))]) }

    private static func reply(_ status: UInt32, members: [(String, JSON)]) -> WebReply {
        // Engines send no second request that way, because they do not know whether a connection is still good.
        WebReply(status: status, type: type, body: Array(JSON.object(members).text.utf8), headers: [("Connection", "close")])
    }
}
