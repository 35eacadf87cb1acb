import Foundation
import Glibc
import TestSupport

/// A Flatpak application in a session, made and installed for the test. Its runtime is this machine's /usr, which it sees by
/// `filesystems=host-os`. Its programs are the access probe and `portal-client`.
final class FlatpakApplication {
    static let name = "org.test.Flatpak"
    private static let runtime = "org.test.Runtime"

    /// Whose session it is.
    static let owner: Identity? = Machine.plainUser
    static let isPossible: Bool = {
        guard Machine.offers("flatpak"), Command.exists("xdg-dbus-proxy"), Machine.usersCanMount, let owner else { return false }
        let sandbox = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        return (try? Command.run(sandbox, as: owner, within: 10))?.status == 0
    }()
    static let why = "needs flatpak, and users who can mount and make namespaces"

    private let session: PortalSession

    init(in session: PortalSession) throws {
        self.session = session
        let base = session.fixture.base
        let arch = try flatpak("--default-arch").orThrow().trimmed
        let application = "name=\(Self.name)\nruntime=\(Self.runtime)/\(arch)/1\nsdk=\(Self.runtime)/\(arch)/1\ncommand=client\n"
        let fixture = session.fixture
        for place in ["flatpak/runtime/files", "flatpak/runtime/usr", "flatpak/app/files/bin", "flatpak/app/export"] {
            try fixture.directory(place)
        }
        for place in ["flatpak", "flatpak/runtime", "flatpak/app", "flatpak/app/files"] { try fixture.directory(place) }
        for place in ["bin", "lib", "lib64", "share"] where access("/usr/" + place, F_OK) == 0 {
            symlink("/run/host/usr/" + place, "\(base)/flatpak/runtime/usr/\(place)")
        }
        let runtime = "[Runtime]\nname=\(Self.runtime)\nruntime=\(Self.runtime)/\(arch)/1\nsdk=\(Self.runtime)/\(arch)/1\n"
        try runtime.write(toFile: base + "/flatpak/runtime/metadata", atomically: false, encoding: .utf8)
        try "[Application]\n\(application)\n[Context]\nfilesystems=host-os;\n".write(
            toFile: base + "/flatpak/app/metadata", atomically: false, encoding: .utf8)
        let programs = base + "/flatpak/app/files/bin/"
        try Command.run(["install", "-m", "755", session.program, programs + "client"]).orThrow()
        try Command.run(["install", "-m", "755", Programs.probe, programs + "probe"]).orThrow()
        // The compiler's libraries, which are outside the system. Flatpak adds /app/lib to the
        // search path.
        let libraries = try fixture.directory("flatpak/app/files/lib")
        for line in try Command.run(["ldd", Programs.probe]).orThrow().text.split(separator: "\n") {
            let words = line.split(separator: " ").map { $0.trimmingCharacters(in: .whitespaces) }
            guard words.count > 2, words[1] == "=>", !words[2].hasPrefix("/lib"), !words[2].hasPrefix("/usr/lib") else { continue }
            try Command.run(["install", "-m", "755", words[2], libraries]).orThrow()
        }
        try flatpak("build-export", "--runtime", base + "/flatpak/repo", base + "/flatpak/runtime", "1").orThrow()
        try flatpak("build-export", base + "/flatpak/repo", base + "/flatpak/app", "1").orThrow()
        try flatpak("remote-add", "--user", "--no-gpg-verify", "here", base + "/flatpak/repo").orThrow()
        try flatpak("install", "--user", "-y", "--noninteractive", "here", "\(Self.name)//1").orThrow()
    }

    /// Without root, an installation needs a system bus, which flatpak asks for parental controls.
    /// It needs no answer, so the session's bus suffices.
    private var environment: [String: String] {
        let environment = session.fixture.environment
        return environment.merging(["DBUS_SYSTEM_BUS_ADDRESS": environment["DBUS_SESSION_BUS_ADDRESS"] ?? ""]) { $1 }
    }

    /// Flatpak's command, in the session.
    @discardableResult
    func flatpak(_ words: String...) throws -> Output {
        try Command.run(["flatpak"] + words, as: session.fixture.owner, environment: environment)
    }

    private func command(_ program: String, _ options: [String]) -> [String] {
        ["flatpak", "run", "--command=\(program)"] + options + [Self.name]
    }

    /// Runs a program in it.
    func run(_ program: String, _ words: [String], options: [String] = []) throws -> Child {
        let child = try Child(command(program, options) + words, identity: session.fixture.owner, environment: environment)
        session.companions.append(child)
        return child
    }

    /// A program in it that calls portals.
    func client(options: [String] = []) throws -> PortalClient {
        try session.keep(
            PortalClient(command("client", options), identity: session.fixture.owner, environment: environment))
    }

    /// Where a path in the mount of documents is for the application: Flatpak shows it the mount at a place of its own.
    func inside(_ path: String) -> String { path.replacingOccurrences(of: session.mountpoint, with: "/run/flatpak/doc") }
}
