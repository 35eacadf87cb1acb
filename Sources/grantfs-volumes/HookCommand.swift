import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem
import Glibc

/// `grantfs oci-hook`, which runtimes start beside a container (OCI runtime specification, createRuntime and poststop). The view of the
/// container is a volume of the plugin, so its daemon is not a process of the runtime.
struct HookCommand {
    static let bodies: [String: CommandBody] = ["oci-hook": run]

    private let plugin: PluginClient
    private let container: ContainerState
    /// The directories that containers may get, and everything in them.
    private let allowed: [[UInt8]]
    /// Podman and CRI-O show the first 12 digits of an id.
    private var volume: String {
        let isLong = container.id.utf8.count == 64 && container.id.utf8.allSatisfy { "0123456789abcdef".utf8.contains($0) }
        return "oci-\(isLong ? String(container.id.prefix(12)) : container.id)"
    }

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        signal(SIGPIPE, SIG_IGN)
        let command = HookCommand(
            plugin: PluginClient(
                socket: CanonicalPath.absolute(arguments.bytes("socket") ?? Array(VolumePluginCommand.standardSocket.utf8))),
            container: try ContainerState.ofStandardInput(), allowed: arguments.options["allow"] ?? [])
        if command.container.isStopped { try command.end() } else { try command.begin() }
        return 0
    }

    /// Makes the view, and attaches it in the container's mount namespace, which has no other process yet.
    private func begin() throws(GrantError) {
        let settings = try ContainerSettings(bundle: container.bundle)
        guard let destination = settings.destination else {
            if settings.options.isEmpty { return }
            throw GrantError(.usage, "the container gets no view", cause: "the annotation grantfs.destination is missing")
        }
        let options = try options(settings.options)
        // Of a container of this id that ended without the hook. Its view may have got more grants.
        try end()
        do throws(GrantError) {
            try plugin.call("Create", [name, ("Opts", .object(options.map { ($0.name, .string($0.value)) }))])
            let answer = try plugin.call("Mount", [name, ("ID", .string(container.id))])
            guard let place = answer.members.member("Mountpoint")?.stringValue else { throw failure("the plugin tells no mountpoint") }
            try attach(place, of: answer.process, settings.root, destination)
        } catch {
            try? end()
            throw error
        }
    }

    private func attach(_ place: String, of plugin: Int32, _ root: String, _ destination: String) throws(GrantError) {
        do throws(Errno) {
            // A runtime may have a mount namespace of its own, as Podman for a user namespace.
            try DetachedMount(of: place, seenBy: plugin).attach(inNamespaceOf: container.process, root: root, path: destination)
        } catch {
            throw failure(error.description)
        }
    }

    private func failure(_ cause: String) -> GrantError { GrantError(.mountFailed, "the container gets no view", cause: cause) }

    private var name: (String, JSON) { ("Name", .string(volume)) }

    /// The options of the volume. Annotations grant nothing but the directories of `allowed`.
    private func options(_ given: [(name: String, value: String)]) throws(GrantError) -> [(name: String, value: String)] {
        if let name = given.first(where: { ["container", "view"].contains($0.name) })?.name {
            throw GrantError(.usage, "unknown annotation “grantfs.\(name)” of a container")
        }
        for (name, value) in given where name == "path" {
            // The text is enough, because the plugin refuses links.
            let path = CanonicalPath.plain(Array(value.utf8))
            if allowed.contains(where: { MountTable.path(path, isAtOrBelow: CanonicalPath.plain($0)) }) { continue }
            throw GrantError(
                .permission, "“\(VisibleText.of(path))” cannot be granted to containers", cause: "the hook does not allow it",
                advice: "add --allow DIR to the hook's args")
        }
        return try withOwners(given) + [("container", container.id)]
    }

    /// Files have the owners that the container's user namespace has, if that is wished. An annotation could give others rights.
    private func withOwners(_ given: [(name: String, value: String)]) throws(GrantError) -> [(name: String, value: String)] {
        guard let wished = given.first(where: { $0.name.hasPrefix("map") }) else { return given }
        guard wished.name == "map", wished.value == "container" else {
            throw GrantError(
                .usage, "invalid annotation “grantfs.\(wished.name)=\(wished.value)” of a container", advice: "grantfs.map=container")
        }
        let others = given.filter { $0.name != "map" }
        let (users, groups) = (try map("uid_map"), try map("gid_map"))
        // It has the machine's users.
        if users == ContainerState.wholeMap, groups == ContainerState.wholeMap { return others }
        return others + [("map", users), ("map-groups", groups)]
    }

    private func map(_ name: String) throws(GrantError) -> String {
        do throws(Errno) {
            return try container.map(name)
        } catch {
            throw failure("its user namespace cannot be read, \(error.description)")
        }
    }

    /// Takes the view away, if there is one.
    private func end() throws(GrantError) {
        try plugin.call("Remove", [name, ("Container", .string(container.id))])
    }
}
