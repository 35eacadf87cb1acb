import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    @Suite struct Sessions {
        private let app = "org.test.App"

        private func mounts(_ session: PortalSession) -> Int { session.fixture.mountpoints.count { $0 == session.mountpoint } }

        @Test(
            "An orderly end of the portal removes its mount and session documents"
        )
        func ended() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let kept = try session.host.addFull([file], app: app, ["read"]).id
            let transient = try session.host.addFull([file], flags: 1, app: app, ["read", "write"]).id
            #expect(kept != transient && text("\(session.mountpoint)/\(transient)/report.txt") == "old\n")
            #expect(try session.permissions(of: transient) == nil)
            try session.stop()
            #expect(mounts(session) == 0)
            #expect(Set(try session.fixture.list("--all").map(\.name)) == [kept])
            try session.start()
            #expect(text("\(session.mountpoint)/\(kept)/report.txt") == "old\n")
            #expect(try session.host.call("Info", "(s)", [kept]).values.last as? [String: [String]] == [app: ["read"]])
            #expect(try session.host.call("Info", "(s)", [transient]).error == "InvalidArgument")
        }

        @Test(
            "A killed portal is restored at the same place without new grants",
            arguments: [false, true])
        func killed(withDaemon: Bool) throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let kept = try session.host.addFull([file], app: app, ["read"]).id
            let revoked = try session.host.addFull([try session.file("other")], app: app, ["read"]).id
            let transient = try session.host.addFull([file], flags: 1, app: app, ["read"]).id
            #expect(try session.host.call("RevokePermissions", "(ssas)", [revoked, app, ["read"]]).error == nil)
            try session.stop(with: SIGKILL)
            // Withdrawn while no service listened.
            let late = kept
            try session.grantfs("revoke", late, "--view", "app:\(app)").orThrow()
            if withDaemon { try session.fixture.killDaemon(at: session.mountpoint) }
            try session.start()
            #expect(mounts(session) == 1)
            #expect(text("\(session.mountpoint)/\(kept)/report.txt") == "old\n")
            let active = try session.fixture.list().map { "\($0.view) \($0.name)" }.sorted()
            #expect(active == ["app: \(kept)", "app: \(revoked)"].sorted(), "\(active)")
            try session.fixture.wait(until: "the permission is gone") { try session.permissions(of: late) == [:] }
            #expect(try session.host.call("Info", "(s)", [transient]).error == "InvalidArgument")
        }

        @Test("A mount whose daemon dies is made again by the portal")
        func remounted() throws {
            let session = try PortalSession.started()
            let id = try session.host.add(try session.file()).id
            try session.fixture.killDaemon(at: session.mountpoint)
            try session.fixture.wait(until: "it is shown again") { text("\(session.mountpoint)/\(id)/report.txt") == "old\n" }
            #expect(mounts(session) == 1)
            #expect(try session.host.add("\(session.mountpoint)/\(id)/report.txt").id == id)
        }

        @Test(
            "A user's portal has that user's rights",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)),
            .enabled(if: Machine.hasSandboxes, "bubblewrap makes no sandboxes here"))
        func ofAUser() throws {
            let session = try PortalSession.started(owner: try #require(Machine.plainUser))
            let file = try session.file()
            let own = try session.host.addFull([file], app: app, ["read"]).id
            let program = try session.sandboxed(app, binding: [((file as NSString).deletingLastPathComponent, "/papers")])
            #expect(try program.read("/run/flatpak/doc/\(own)/report.txt").texts == ["old\n"])
            let id = try program.add("/papers/report.txt", reuse: false).id
            #expect(try program.write("/run/flatpak/doc/\(id)/report.txt", "new\n").errno == nil && text(file) == "new\n")
            try session.grantfs("revoke", id, "--view", "app:\(app)").orThrow()
            #expect(try program.read("/run/flatpak/doc/\(id)/report.txt").errno == "EACCES")
            let secret = try session.fixture.directory("outside") + "/secret"
            try "secret".write(toFile: secret, atomically: false, encoding: .utf8)
            chown(secret, 0, 0)
            chmod(secret, 0o600)
            if Identity.isRoot { #expect(try session.host.add(secret).error == "InvalidArgument") }
            try session.stop(with: SIGKILL)
            try session.fixture.killDaemon(at: session.mountpoint)
            try session.start()
            #expect(try session.host.read("\(session.mountpoint)/\(own)/report.txt").texts == ["new\n"])
            try session.stop()
            #expect(mounts(session) == 0)
        }

        @Test("A second portal requires `--replace`, and the first then ends in order")
        func replaced() throws {
            let session = try PortalSession.started()
            let id = try session.host.add(try session.file()).id
            let second = try Command.run([Programs.grantfs, "portal"], environment: session.fixture.environment)
            #expect(second.status == 1 && second.errors.contains("--replace"), "\(second)")
            let first = try #require(session.portal)
            try session.start("--replace")
            #expect(first.wait(within: 30) == 0)
            try session.fixture.wait(until: "it is shown") { text("\(session.mountpoint)/\(id)/report.txt") == "old\n" }
            #expect(mounts(session) == 1)
            #expect(try session.host.call("Info", "(s)", [id]).error == nil)
        }

        @Test("The portal reports a missing bus and ends when it disappears")
        func busGone() throws {
            let session = try PortalSession.started()
            _ = try session.host.addFull([try session.file()], flags: 1)
            session.endBus()
            #expect(try #require(session.portal).wait(within: 30) == 1)
            #expect(session.said.contains("the session bus has gone") && mounts(session) == 0)
            #expect(try session.fixture.list("--all").isEmpty)
            let alone = try Command.run([Programs.grantfs, "portal"], environment: session.fixture.environment)
            #expect(alone.status == 1 && alone.errors.contains("the session bus cannot be reached"), "\(alone)")
        }

        @Test("Thousands of concurrent calls are answered in bounded memory")
        func burst() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let id = try host.add(file).id
            let portal = try #require(session.portal)
            let other = try session.another()
            let before = Processes.residentKilobytes(portal.pid)
            let requests = (0..<3000).map { number in
                switch number % 3 {
                case 0: PortalClient.request("Info", "(s)", [id])
                case 1: PortalClient.request("Add", "(hbb)", [0, true, true], open: [file])
                default: PortalClient.request("Delete", "(s)", ["ffffffff"])
                }
            }
            try host.begin(["burst": requests])
            usleep(300_000)
            let start = Machine.milliseconds
            #expect(try other.call("Info", "(s)", [id]).error == nil)
            let waited = Machine.milliseconds - start
            let answers = try host.answers()
            #expect(waited < max(5000, (Machine.milliseconds - start) / 2), "\(waited) ms")
            #expect(answers.count == requests.count)
            #expect(Set(answers.map { $0.error ?? $0.id }) == [file, id, "NotFound"])
            #expect(Processes.residentKilobytes(portal.pid) < before + 100_000)
        }

        @Test("A caller that leaves without its answer affects no other caller")
        func callerGone() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            for _ in 0..<5 {
                let client = try session.another()
                try client.begin(["burst": (0..<200).map { _ in PortalClient.request("Add", "(hbb)", [0, false, true], open: [file]) }])
                usleep(100_000)
                client.end()
            }
            #expect(try session.host.call("GetMountPoint").texts == [session.mountpoint])
            #expect(try session.host.add(file).error == nil)
        }
    }
}
