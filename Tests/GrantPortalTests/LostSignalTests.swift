import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// The bus drops signals for a connection that does not read. A client sends so much to the
    /// service that it misses some.
    @Suite struct LostSignals {
        private let app = "org.test.App"

        /// Sends 1 MB so often to each connection of the process.
        private static let flood = """
            import sys
            from gi.repository import Gio, GLib
            pid, count = int(sys.argv[1]), int(sys.argv[2])
            bus = Gio.bus_get_sync(Gio.BusType.SESSION)
            daemon = 'org.freedesktop.DBus'
            def ask(member, *arguments):
                types = '(%s)' % ('s' * len(arguments))
                return bus.call_sync(daemon, '/org/freedesktop/DBus', daemon, member, GLib.Variant(types, arguments), None, 0, -1, None).unpack()[0]
            def process(name):
                try: return ask('GetConnectionUnixProcessID', name)
                except GLib.Error: return None
            text = GLib.Variant('(s)', ['x' * 1_000_000])
            for name in [name for name in ask('ListNames') if name.startswith(':') and process(name) == pid]:
                for _ in range(count):
                    bus.emit_signal(name, '/x', 'x.y', 'Z', text)
                    bus.flush_sync(None)
            print(ask('GetId'))
            """

        private func change(_ session: PortalSession, _ id: String) throws {
            let answer = try session.host.call(
                "DeletePermission", "(sss)", ["documents", id, app], interface: PortalSession.storeName, service: PortalSession.storeName,
                object: PortalSession.storeObject)
            #expect(answer.error == nil, "\(answer)")
        }

        private func isReadable(_ path: String) -> Bool { (try? String(contentsOfFile: path, encoding: .utf8)) != nil }

        @Test(
            "A permission revoked while the bus drops messages is withdrawn",
            arguments: [false, true])
        func dropped(storeEnds: Bool) throws {
            let session = try PortalSession(waiting: 100_000_000)
            try session.start()
            _ = try #require(try session.bytes("PeakOutgoingBytes"), "dbus-daemon was built without statistics")
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, ["read"]).id
            let other = try session.host.addFull([try session.file("other.txt")], flags: 2, app: app, ["read"]).id
            let path = "\(session.view(of: app))/\(id)/report.txt"
            let held = try #require(FileHandle(forReadingAtPath: path))
            session.signalPortal(SIGSTOP)
            defer { session.signalPortal(SIGCONT) }
            let pid = try #require(session.portal).pid
            try Command.run(
                ["/usr/bin/python3", "-c", Self.flood, "\(pid)", "110"], environment: session.fixture.environment, within: 120
            ).orThrow()
            if storeEnds {
                try session.endStore()
                try session.startStore()
            }
            try change(session, id)
            let late = try session.another()
            session.signalPortal(SIGCONT)
            try session.fixture.wait(until: "the document is taken away", within: 60) {
                !isReadable(path) && (try? held.read(upToCount: 1)) == nil
            }
            try session.fixture.wait(until: "a connection that was made meanwhile is served", within: 60) {
                try late.call("List", "(s)", [""]).error == nil
            }
            // Later signals of the new permission store arrive.
            #expect(isReadable("\(session.view(of: app))/\(other)/other.txt"))
            try change(session, other)
            try session.fixture.wait(until: "the other one is taken away as well") {
                !isReadable("\(session.view(of: app))/\(other)/other.txt")
            }
        }
    }
}
