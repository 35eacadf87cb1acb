import Foundation
import Glibc
import TestSupport
import Testing

/// A session of its own: a bus, the permission store of xdg-desktop-portal, and `grantfs portal`, all below a fixture's directory.
final class PortalSession {
    static let permissionStore = "/usr/libexec/xdg-permission-store"
    static let storeName = "org.freedesktop.impl.portal.PermissionStore"
    static let storeObject = "/org/freedesktop/impl/portal/PermissionStore"
    static let isPossible =
        Machine.hasFUSE && Machine.offers("dbus-daemon") && access(permissionStore, X_OK) == 0 && pythonHasGLib
        && access("/usr/bin/python3", X_OK) == 0
    static let why = "needs /dev/fuse, dbus-daemon, xdg-permission-store and python3-gi"
    private static let pythonHasGLib = (try? Command.run(["/usr/bin/python3", "-c", "from gi.repository import Gio"]).status) == 0

    let fixture: MountFixture
    private(set) var portal: Child?
    private var bus: Child?
    private var store: Child?
    private var clients: [PortalClient] = []
    /// Others that end with it.
    var companions: [Child] = []
    let program: String
    /// Another program that speaks to the bus by itself, see `impostor`.
    let impostor: String
    private var instances = 0

    var mountpoint: String { fixture.base + "/run/doc" }

    /// `hasStore`: whether there is a permission store. `owner`: the user of the session. `place`: the directory of its files. `waiting`:
    /// the number of bytes that the bus keeps for a connection.
    init(
        hasStore: Bool = true, owner: Identity = .current, in place: String = Programs.temporaryDirectory, waiting: Int = 1_000_000_000
    ) throws {
        fixture = try MountFixture(owner: owner, in: place)
        let socket = "unix:path=\(fixture.base)/bus"
        let configuration = fixture.base + "/bus.conf"
        try Data(Self.configuration(socket, waiting).utf8).write(to: URL(fileURLWithPath: configuration))
        fixture.switches = [
            "DBUS_SESSION_BUS_ADDRESS": socket, "XDG_RUNTIME_DIR": try fixture.directory("run"),
            "XDG_DATA_HOME": try fixture.directory("data"), "HOME": try fixture.directory("home"),
        ]
        chmod(fixture.base + "/run", 0o700)
        // At a place that the session's owner may read.
        program = fixture.base + "/portal-client"
        try Data(contentsOf: PortalClient.source).write(to: URL(fileURLWithPath: program))
        impostor = fixture.base + "/impostor"
        try Data(contentsOf: PortalClient.source.deletingLastPathComponent().appendingPathComponent("impostor")).write(
            to: URL(fileURLWithPath: impostor))
        try startBus(configuration)
        if hasStore { try startStore() }
    }

    /// One with a portal.
    static func started(
        hasStore: Bool = true, owner: Identity = .current, in place: String = Programs.temporaryDirectory
    ) throws -> PortalSession {
        let session = try PortalSession(hasStore: hasStore, owner: owner, in: place)
        try session.start()
        return session
    }

    deinit {
        for client in clients { client.end() }
        for companion in companions { companion.kill() }
        portal?.kill()
        store?.kill()
        bus?.kill()
        fixture.finish()
    }

    private func startBus(_ configuration: String) throws {
        // Its output is kept, because it would block without a reader.
        let bus = try Child(
            [
                "sh", "-c", "exec dbus-daemon --config-file=\"$0\" --nofork --nopidfile --print-address 2>\"$0.log\"", configuration,
            ], identity: fixture.owner, environment: fixture.environment)
        self.bus = bus
        guard bus.line() != nil else { throw TestFailure("no session bus") }
    }

    func startStore() throws {
        store = try Child([Self.permissionStore], identity: fixture.owner, environment: fixture.environment)
        try fixture.wait(until: "the permission store is there") { try hasOwner(Self.storeName) }
    }

    /// The permission store ends. The next one reads its file.
    func endStore() throws {
        store?.kill()
        try fixture.wait(until: "the permission store is gone") { try !hasOwner(Self.storeName) }
    }

    /// The bus ends, as at the end of a session.
    func endBus() { bus?.kill() }

    /// The permission store is held up, or goes on.
    func signalStore(_ signal: Int32) { if let store { kill(store.pid, signal) } }

    func signalPortal(_ signal: Int32) { if let portal { kill(portal.pid, signal) } }

    /// Starts `grantfs portal`, and waits until it answers.
    func start(_ arguments: String...) throws {
        try launch(arguments)
        try waitForAnswer()
    }

    func waitForAnswer() throws { try fixture.wait(until: "the portal answers") { try self.answers() } }

    /// Starts `grantfs portal`, and waits for nothing.
    func launch(_ arguments: [String] = []) throws {
        let log = fixture.base + "/portal.log"
        portal = try Child(
            ["sh", "-c", "exec \"$0\" portal \"$@\" 2>>\(log)", Programs.grantfs(for: fixture.owner)] + arguments, identity: fixture.owner,
            environment: fixture.environment)
    }

    static let original = "/usr/libexec/xdg-document-portal"

    /// Starts the desktop's own portal instead.
    func startOriginal() throws {
        portal = try Child(
            ["sh", "-c", "exec \(Self.original) 2>>\(fixture.base)/portal.log"], identity: fixture.owner, environment: fixture.environment)
        try fixture.wait(until: "the portal answers") { try self.answers() }
    }

    /// What the portal has said.
    var said: String { (try? String(contentsOfFile: fixture.base + "/portal.log", encoding: .utf8)) ?? "" }

    private func answers() throws -> Bool {
        guard try hasOwner("org.freedesktop.portal.Documents") else {
            if let status = portal?.wait(within: 0) { throw TestFailure("the portal ended with \(status): \(said)") }
            return false
        }
        // A service with a successor answers until it loses the name. At the handover it refuses
        // the calls that it has not begun.
        let owner = try askBus("GetConnectionUnixProcessID", PortalClient.documents)
        guard owner as? Int == portal.map({ Int($0.pid) }) else { return false }
        return try host.call("GetMountPoint").texts == [mountpoint]
    }

    private func askBus(_ member: String, _ name: String) throws -> Any? {
        try host.call(member, "(s)", [name], service: "org.freedesktop.DBus", object: "/org/freedesktop/DBus").values.first
    }

    func hasOwner(_ name: String) throws -> Bool { try askBus("NameHasOwner", name) as? Bool == true }

    /// Ends it as the service manager does.
    func stop(with signal: Int32 = SIGTERM) throws {
        guard let portal else { return }
        kill(portal.pid, signal)
        guard portal.wait(within: 30) != nil else { throw TestFailure("the portal has not ended") }
        self.portal = nil
    }

    /// A program outside of any sandbox.
    var host: PortalClient {
        get throws {
            if let first = clients.first { return first }
            let client = try PortalClient(["/usr/bin/python3", program], identity: fixture.owner, environment: fixture.environment)
            clients.append(client)
            return client
        }
    }

    /// A program in a sandbox as Flatpak makes it, which claims to be the application. It sees the system's files, the bus and the bound
    /// places (host path, sandbox path). `info`: its own claim, if it differs from Flatpak's record. `options`: more options of bwrap.
    func sandboxed(
        _ app: String, info: String? = nil, binding places: [(host: String, inside: String)] = [], options: [String] = []
    ) throws -> PortalClient {
        let words = try sandbox(app, info, places) + options
        let client = try PortalClient(words + ["/usr/bin/python3", "/client"], identity: fixture.owner, environment: fixture.environment)
        clients.append(client)
        return client
    }

    /// Another program in such a sandbox.
    func inSandbox(_ app: String, _ command: [String], binding places: [(host: String, inside: String)] = []) throws -> Child {
        try Child(try sandbox(app, nil, places) + command, identity: fixture.owner, environment: fixture.environment)
    }

    /// The words of bwrap for such a sandbox.
    func sandbox(of app: String) throws -> [String] { try sandbox(app, nil, []) }

    /// What the portal has open.
    var descriptors: Int {
        portal.map { (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\($0.pid)/fd").count) ?? 0 } ?? 0
    }

    /// A run of the application, as Flatpak notes it: its number, and the file that goes into its sandbox.
    func instance(_ app: String) throws -> (number: Int, file: String) {
        instances += 1
        try fixture.directory("run/.flatpak")
        let file = try fixture.directory("run/.flatpak/\(instances)") + "/info"
        try Self.information(app, instances).write(toFile: file, atomically: false, encoding: .utf8)
        chown(file, fixture.owner.uid, fixture.owner.gid)
        return (instances, file)
    }

    static func information(_ app: String, _ number: Int) -> String {
        "[Application]\nname=\(app)\nruntime=runtime/org.test.Runtime/x/1\n\n[Instance]\ninstance-id=\(number)\n"
    }

    private func sandbox(_ app: String, _ info: String?, _ places: [(host: String, inside: String)]) throws -> [String] {
        var file = fixture.base + "/info-\(app)"
        if let info { try info.write(toFile: file, atomically: false, encoding: .utf8) } else { file = try instance(app).file }
        var words = [
            "bwrap", "--die-with-parent", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "--ro-bind", file, "/.flatpak-info",
        ]
        for place in ["/usr", "/bin", "/lib", "/lib64", "/etc"] where access(place, F_OK) == 0 { words += ["--ro-bind", place, place] }
        words += ["--bind", fixture.base + "/bus", fixture.base + "/bus"]
        words += ["--ro-bind", program, "/client"]
        words += ["--ro-bind", impostor, "/impostor"]
        // Where Flatpak shows an application its documents.
        words += ["--bind", view(of: app), "/run/flatpak/doc"]
        for place in places { words += ["--bind", place.host, place.inside] }
        return words
    }

    /// Another program of the host.
    func another() throws -> PortalClient {
        let client = try PortalClient(["/usr/bin/python3", program], identity: fixture.owner, environment: fixture.environment)
        clients.append(client)
        return client
    }

    /// Has a program end with the session.
    func keep(_ client: PortalClient) -> PortalClient {
        clients.append(client)
        return client
    }

    /// A file on the host.
    func file(_ name: String = "report.txt", _ text: String = "old\n") throws -> String {
        let path = try fixture.source("papers") + "/" + name
        try text.write(toFile: path, atomically: false, encoding: .utf8)
        chown(path, fixture.owner.uid, fixture.owner.gid)
        return path
    }

    func grantfs(_ words: String...) throws -> Output { try fixture.grantfs(words) }

    /// What an application sees.
    func view(of app: String) -> String { "\(mountpoint)/by-app/\(app)" }

    /// The permission store's entry of a document, or nil if it has none.
    func permissions(of id: String) throws -> [String: [String]]? {
        let answer = try host.call(
            "Lookup", "(ss)", ["documents", id], service: Self.storeName, object: Self.storeObject)
        return answer.values.first as? [String: [String]]
    }

    /// Changes it there, as Flatpak's commands do.
    func store(_ member: String, _ signature: String, _ arguments: [Any]) throws {
        let answer = try host.call(
            member, signature, arguments, service: Self.storeName, object: Self.storeObject)
        guard answer.error == nil else { throw TestFailure("\(member): \(answer)") }
    }
}

/// What a call gave.
struct PortalAnswer: CustomStringConvertible {
    let values: [Any]
    /// Without what all the portal's errors begin with.
    let error: String?
    let message: String?
    /// Of a file.
    let errno: String?

    init(_ answer: [String: Any]) {
        values = answer["result"] as? [Any] ?? (answer["result"] as? String).map { [$0] } ?? []
        error = (answer["error"] as? String)?.replacingOccurrences(of: "org.freedesktop.portal.Error.", with: "")
        message = answer["message"] as? String
        errno = answer["errno"] as? String
    }

    var texts: [String] { values.compactMap { $0 as? String } }
    /// A document's id, alone or in a list.
    var id: String { texts.first ?? (values.first as? [String])?.first ?? "" }
    var dictionary: [String: Any] { values.first as? [String: Any] ?? [:] }
    var description: String { error.map { "\($0): \(message ?? "")" } ?? errno ?? "\(values)" }
}

/// A program on the bus, see `portal-client`.
final class PortalClient {
    static let source = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("portal-client")
    static let path = 0o10000000
    static let documents = "org.freedesktop.portal.Documents"

    private let child: Child
    let name: String
    var pid: pid_t { child.pid }

    init(_ words: [String], identity: Identity, environment: [String: String]) throws {
        child = try Child(words, identity: identity, environment: environment)
        guard let line = child.line(), let ready = try Self.object(line)["ready"] as? String else {
            throw TestFailure("no client: \(words)")
        }
        name = ready
    }

    func end() { child.kill() }

    private static func object(_ line: String) throws -> [String: Any] {
        try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] ?? [:]
    }

    func ask(_ request: [String: Any], within seconds: Double = 120) throws -> [String: Any] {
        try begin(request)
        return try answer(within: seconds)
    }

    /// Asks, and waits for nothing.
    func begin(_ request: [String: Any]) throws {
        child.send(String(decoding: try JSONSerialization.data(withJSONObject: request), as: UTF8.self))
    }

    func answer(within seconds: Double = 120) throws -> [String: Any] {
        guard let line = child.line(within: seconds) else { throw TestFailure("no answer") }
        return try Self.object(line)
    }

    static func request(
        _ member: String, _ signature: String, _ arguments: [Any], open: [String] = [], flags: Int = PortalClient.path,
        interface: String? = nil,
        service: String? = nil, object: String? = nil
    ) -> [String: Any] {
        var request: [String: Any] = ["call": member, "signature": signature, "arguments": arguments, "open": open.map { [$0, flags] }]
        if let interface { request["interface"] = interface }
        if let service { request["service"] = service }
        if let object { request["object"] = object }
        return request
    }

    func call(
        _ member: String, _ signature: String = "", _ arguments: [Any] = [], open: [String] = [], flags: Int = PortalClient.path,
        interface: String? = nil, service: String? = nil, object: String? = nil
    ) throws -> PortalAnswer {
        PortalAnswer(
            try ask(
                Self.request(
                    member, signature, arguments, open: open, flags: flags, interface: interface, service: service, object: object)))
    }

    /// What a burst of calls gave that has begun.
    func answers() throws -> [PortalAnswer] { (try answer()["results"] as? [[String: Any]] ?? []).map { PortalAnswer($0) } }

    /// The user's choice in the desktop's dialog: the paths that the program gets, or the portal's
    /// error.
    func choose(_ member: String, _ options: [String: Any] = [:]) throws -> Choice {
        let answer = try ask(["choose": member, "options": options])
        return Choice(
            response: answer["response"] as? Int, paths: answer["uris"] as? [String] ?? [], error: answer["error"] as? String)
    }

    struct Choice {
        /// 0 when something was chosen.
        let response: Int?
        let paths: [String]
        let error: String?
    }

    /// Saves by g_file_set_contents. nil, or what GLib says of it.
    func save(_ path: String, _ text: String) throws -> String? { try ask(["set": [path, text]])["errno"] as? String }

    func add(_ path: String, reuse: Bool = true, persistent: Bool = true) throws -> PortalAnswer {
        try call("Add", "(hbb)", [0, reuse, persistent], open: [path])
    }

    func addFull(_ paths: [String], flags: Int = 3, app: String = "", _ permissions: [String] = []) throws -> PortalAnswer {
        try call("AddFull", "(ahusas)", [Array(paths.indices), flags, app, permissions], open: paths)
    }

    func read(_ path: String) throws -> PortalAnswer { PortalAnswer(try ask(["read": path])) }
    func write(_ path: String, _ text: String) throws -> PortalAnswer { PortalAnswer(try ask(["write": [path, text]])) }
    func list(_ path: String) throws -> PortalAnswer { PortalAnswer(try ask(["list": path])) }
}

func text(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }
