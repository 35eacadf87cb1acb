import Foundation

/// The desktop's file chooser, played by `FakePortal` on a session bus of its own: one that starts nothing by itself, whatever the machine has
/// installed. The fixture's commands have that bus.
public final class FakeDesktop {
    public let fixture: MountFixture
    private let bus: Child
    private var portal: Child?

    public init() throws {
        fixture = try MountFixture()
        let socket = "unix:path=\(fixture.base)/bus"
        let configuration = fixture.base + "/bus.conf"
        try Data(Self.configuration(socket).utf8).write(to: URL(fileURLWithPath: configuration))
        bus = try Child(
            ["dbus-daemon", "--config-file=\(configuration)", "--nofork", "--nopidfile", "--print-address"],
            environment: ["XDG_DATA_HOME": try Self.offer(in: fixture)], separateErrors: true)
        guard bus.line() != nil else { throw TestFailure("no session bus") }
        fixture.switches = ["DBUS_SESSION_BUS_ADDRESS": socket, "XDG_STATE_HOME": fixture.base + "/state"]
    }

    /// The machine's own (`--session`) has the services of its packages and of its user, and starts the desktop's portal when it is asked for.
    private static func configuration(_ socket: String) -> String {
        """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
          "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
          <type>session</type>
          <listen>\(socket)</listen>
          <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
        </busconfig>
        """
    }

    /// A portal that a bus of the machine's kind would start here, on every machine, as one does where a desktop is installed.
    private static func offer(in fixture: MountFixture) throws -> String {
        let service = "[D-BUS Service]\nName=org.freedesktop.portal.Desktop\nExec=\(Programs.fakePortal) 4 1\n"
        let services = try fixture.directory("data/dbus-1/services")
        try Data(service.utf8).write(to: URL(fileURLWithPath: services + "/org.freedesktop.portal.Desktop.service"))
        return fixture.base + "/data"
    }

    deinit {
        portal?.kill()
        bus.kill()
    }

    /// Starts a portal of this version; how it answers: see Tests/FakePortal.
    public func play(version: Int = 4, _ reply: String, _ uris: String...) throws -> Child {
        let portal = try Child([Programs.fakePortal, "\(version)", reply] + uris, environment: fixture.switches)
        self.portal = portal
        try portal.expect("ready")
        return portal
    }
}
