import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// The state of a container, which a runtime writes to its hooks.
struct ContainerState {
    let id: String
    let process: Int32
    let bundle: String
    let isStopped: Bool

    static func ofStandardInput() throws(GrantError) -> ContainerState {
        guard let json = JSONReader()?.read(try input()), let id = json.member("id")?.stringValue,
            let status = json.member("status")?.stringValue, let bundle = json.member("bundle")?.stringValue
        else {
            throw GrantError(
                .usage, "the standard input is not the state of a container", advice: "a container runtime starts this command")
        }
        let isStopped = status == "stopped"
        guard case .integer(let number) = json.member("pid") ?? .integer(0), let process = Int32(exactly: number), isStopped || process > 0
        else { throw GrantError(.usage, "the state of the container “\(Terminal.visible(id))” has no process") }
        return ContainerState(id: id, process: process, bundle: bundle, isStopped: isStopped)
    }

    /// The map of its users or groups, as the option “map” has it. `name`: of a file in /proc/PID.
    func map(_ name: String) throws(Errno) -> String {
        let text = String(decoding: try File.contents(of: "/proc/\(process)/\(name)".utf8), as: UTF8.self)
        let ranges = text.split(separator: "\n").map { $0.split(separator: " ").joined(separator: ":") }
        return ranges.joined(separator: "/")
    }

    /// That of a process in the machine's user namespace.
    static let wholeMap = "0:0:4294967295"

    private static func input() throws(GrantError) -> [UInt8] {
        var (bytes, buffer) = ([UInt8](), [UInt8](repeating: 0, count: 1 << 16))
        while true {
            let count = read(STDIN_FILENO, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count <= 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > 1 << 20 { throw GrantError(.usage, "the state of the container is too large") }
        }
    }
}

/// The settings of a container that concern the hook, from config.json of its bundle.
struct ContainerSettings {
    /// The directory that is the container's root, seen from its mount namespace.
    let root: String
    let destination: String?
    /// The options of its volume.
    let options: [(name: String, value: String)]

    private static let prefix = "grantfs."

    init(bundle: String) throws(GrantError) {
        let file = bundle + "/config.json"
        let text: [UInt8]
        do throws(Errno) {
            text = try File.contents(of: file.utf8)
        } catch {
            throw GrantError(.invalidFile, "\(Terminal.visible(file)) cannot be read", cause: error.description)
        }
        guard let json = JSONReader()?.read(text), let root = json.member("root")?.member("path")?.stringValue else {
            throw GrantError(.invalidFile, "\(Terminal.visible(file)) is not the configuration of a container")
        }
        self.root = root.hasPrefix("/") ? root : bundle + "/" + root
        var options: [(name: String, value: String)] = []
        if case .object(let annotations) = json.member("annotations") {
            for (name, value) in annotations where name.hasPrefix(ContainerSettings.prefix) {
                guard let value = value.stringValue else { throw GrantError(.usage, "the annotation “\(name)” is not a text") }
                options.append((String(name.dropFirst(ContainerSettings.prefix.count)), value))
            }
        }
        destination = options.first { $0.name == "destination" }?.value
        self.options = options.filter { $0.name != "destination" }
        if let destination { try ContainerSettings.check(destination) }
    }

    private static func check(_ destination: String) throws(GrantError) {
        let names = destination.split(separator: "/")
        let isPlace = destination.hasPrefix("/") && !names.isEmpty && !names.contains("..") && !names.contains(".")
        if isPlace, destination.utf8.count < 4096, !destination.utf8.contains(0) { return }
        throw GrantError(
            .usage, "invalid place “\(VisibleText.of(Array(destination.utf8)))” of a container's view",
            cause: "it must be absolute, without “..”, and not the root")
    }
}
