import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A mountpoint below a directory that another user owns, who renames it and puts a link in its place.
    @Suite(.enabled(if: Identity.isRoot, "\(Machine.needsRoot)")) struct ASwappedMountpoint {
        /// A view at `home/view`, in a `home` of another user, and a filesystem of a third user at
        /// `outside/view`.
        private struct Scene {
            let fixture: MountFixture
            let home: String
            let victim: String
            let source: String
            let daemon: pid_t

            init(cache: String) throws {
                fixture = try MountFixture()
                source = try fixture.source("a")
                try Data(repeating: 0, count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source)
                home = try fixture.directory("home")
                let user = try #require(Machine.plainUser)
                victim = try fixture.directory("outside/view")
                try fixture.mountOther(["mount", "-t", "tmpfs", "victim"], at: victim)
                let mount = try fixture.mount(at: "home/view", options: "allow_other,cache=" + cache)
                chown(home, user.uid, user.gid)
                daemon = try fixture.daemon(at: mount)
            }

            /// What the owner of `home` may do.
            func swap() throws {
                try #require(rename(home, fixture.base + "/moved") == 0)
                try #require(symlink(fixture.base + "/outside", home) == 0)
            }

            var views: [String] { fixture.mountpoints.filter { !$0.hasPrefix(fixture.base + "/outside/") } }
            var hasVictim: Bool { fixture.mountpoints.contains(victim) }
        }

        @Test(
            "A daemon that ends detaches only its own view", arguments: ["shared", "exclusive"])
        func end(cache: String) throws {
            let scene = try Scene(cache: cache)
            let data = Data((0..<1_048_576).map { UInt8(truncatingIfNeeded: $0 &* 31) })
            let written = try FileHandle(forUpdating: URL(fileURLWithPath: scene.home + "/view/a/file"))
            try written.write(contentsOf: data)
            try scene.swap()
            kill(scene.daemon, SIGTERM)
            try scene.fixture.wait(until: "the daemon has ended") { !Processes.isRunning(scene.daemon) }
            #expect(scene.hasVictim, "what the link leads to is mounted as before")
            #expect(scene.views.isEmpty, "the view is found where it is by now: \(scene.views)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: scene.source + "/file")) == data)
            try? written.close()
        }

        @Test("A user's daemon detaches only its own mount", .enabled(if: Machine.usersCanMount))
        func byUser() throws {
            let fixture = try MountFixture(owner: try #require(Machine.plainUser))
            try fixture.grant(try fixture.source("a"))
            for directory in ["home", "outside"] { try fixture.directory(directory) }
            let mount = try fixture.mount(at: "home/view")
            let daemon = try fixture.daemon(at: mount)
            let other = try fixture.mount(at: "outside/view")
            try #require(rename(fixture.base + "/home", fixture.base + "/moved") == 0)
            try #require(symlink(fixture.base + "/outside", fixture.base + "/home") == 0)
            kill(daemon, SIGTERM)
            try fixture.wait(until: "the daemon has ended") { !Processes.isRunning(daemon) }
            #expect(fixture.mountpoints == [other])
        }
    }
}
