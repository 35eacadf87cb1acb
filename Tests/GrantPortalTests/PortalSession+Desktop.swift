import Foundation
import Glibc
import TestSupport

/// The desktop's portal, xdg-desktop-portal, in a session, with a dialog in which a test chooses.
final class Desktop {
    static let portal = "/usr/libexec/xdg-desktop-portal"
    static let isPossible = access(portal, X_OK) == 0
    private static let backend = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("chooser-backend")

    private let dialog: Child
    private let session: PortalSession

    init(_ session: PortalSession) throws {
        self.session = session
        let fixture = session.fixture
        let script = fixture.base + "/chooser-backend"
        try Data(contentsOf: Self.backend).write(to: URL(fileURLWithPath: script))
        let places = try fixture.directory("portals")
        try """
        [portal]
        DBusName=org.freedesktop.impl.portal.desktop.grantfs
        Interfaces=org.freedesktop.impl.portal.FileChooser;
        UseIn=grantfs
        """.write(toFile: places + "/grantfs.portal", atomically: false, encoding: .utf8)
        dialog = try Child(["/usr/bin/python3", script], identity: fixture.owner, environment: fixture.environment)
        try dialog.expect("\"ready\"")
        let settings = ["XDG_DESKTOP_PORTAL_DIR": places, "XDG_CURRENT_DESKTOP": "grantfs"]
        let portal = try Child(
            ["sh", "-c", "exec \(Self.portal) 2>\(fixture.base)/desktop.log"], identity: fixture.owner,
            environment: fixture.environment.merging(settings) { $1 })
        session.companions += [portal, dialog]
        try fixture.wait(until: "the desktop's portal is there") { try session.hasOwner("org.freedesktop.portal.Desktop") }
    }

    /// From now on the dialog chooses these files of the host. `response`: 1 for a cancelled
    /// dialog.
    func choose(_ paths: [String], writable: Bool? = nil, response: Int = 0) throws {
        var choice: [String: Any] = ["uris": paths.map { URL(fileURLWithPath: $0).absoluteString }, "response": response]
        if let writable { choice["writable"] = writable }
        dialog.send(String(decoding: try JSONSerialization.data(withJSONObject: choice), as: UTF8.self))
        // Unsolicited calls come before it.
        while let line = dialog.line(within: 10) { if line == "\"chosen\"" { return } }
        throw TestFailure("the dialog has ended")
    }

    /// The application for which the dialog was shown, or nil if there was none.
    func asked() throws -> String? {
        guard let line = dialog.line(within: 10) else { return nil }
        return (try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [Any])?.dropFirst().first as? String
    }
}
