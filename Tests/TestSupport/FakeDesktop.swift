import Foundation

/// The desktop's file chooser, played by `FakePortal` on its own session bus. That bus starts no service by itself,
/// independent of the packages of the machine. The commands of the fixture use that bus.
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

    /// The machine's own configuration (`--session`) includes the services of its packages and its
    /// user. It starts the desktop's portal on demand.
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

    /// Makes the service file of a portal that an ordinary bus would start on demand, as on a
    /// machine with a desktop. Returns the data directory.
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

    /// Starts a portal of this version. See Tests/FakePortal for the replies.
    public func play(version: Int = 4, _ reply: String, _ uris: String...) throws -> Child {
        let portal = try Child([Programs.fakePortal, "\(version)", reply] + uris, environment: fixture.switches)
        self.portal = portal
        try portal.expect("ready")
        return portal
    }
}
