import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Nothing that a mount's programs hold keeps a granted filesystem from being unmounted once the grant is withdrawn or released.
    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct LettingGoTests {
        enum Way: String, CaseIterable, Sendable { case release, revoke }

        @Test(
            "A released or revoked filesystem can be unmounted despite open files", arguments: Volume.kinds, Way.allCases)
        func unmounting(kind: Volume.Kind, way: Way) throws {
            try expectUnmounting(kind, way, as: .current)
        }

        @Test(
            "A filesystem released or revoked in a user's mount can be unmounted",
            .enabled(if: Machine.usersCanMount, "plain users cannot mount"), arguments: Way.allCases)
        func unmountingAsUser(way: Way) throws {
            try expectUnmounting(.ext4, way, as: try #require(Machine.plainUser))
        }

        /// What a process has open of a filesystem.
        private func opened(by process: pid_t, onDeviceOf place: String) throws -> [String] {
            func device(_ path: String) -> dev_t? {
                var status = stat()
                return stat(path, &status) == 0 ? status.st_dev : nil
            }
            let wanted = try #require(device(place))
            return try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/fd").filter {
                device("/proc/\(process)/fd/\($0)") == wanted
            }
        }

        /// Without what starts from a path.
        private func held(_ results: [AccessResult]) -> [AccessResult] { results.filter { $0.held != "path" && $0.held != "inotify" } }

        private func expectUnmounting(_ kind: Volume.Kind, _ way: Way, as owner: Identity) throws {
            let fixture = try MountFixture(owner: owner)
            let volume = try Volume(kind, at: "volume", in: fixture)
            let source = try fixture.directory("volume/a")
            try Probe.prepare(source, for: owner)
            try fixture.grant(source)
            try Probe.prepare(try fixture.source("other"), for: owner)
            try fixture.grant(fixture.base + "/source/other")
            let mountpoint = try fixture.mount()
            let native = try Probe.native(in: try fixture.directory("native"), as: owner)
            // Files, directories, a working directory, mappings, a running program, locks of every kind.
            let probe = try Probe(below: mountpoint + "/a", as: owner)
            let other = try Probe(below: mountpoint + "/other", as: owner)
            #expect(try Command.run(["umount", volume.place]).status != 0)

            let daemon = try fixture.daemon(at: mountpoint)
            try fixture.grantfs(way.rawValue, "a").orThrow()
            // umount(8) is tried for some seconds, because of others. After a confirmed release
            // there is no need to wait.
            if way == .release { #expect(try opened(by: daemon, onDeviceOf: volume.place) == []) }
            let unmounted = try volume.unmount()
            #expect(unmounted.status == 0, "\(unmounted)")
            // The name of a released grant is gone. Held descriptors are refused in either case.
            let refused = try probe.attempt()
            ProbedMount.expectRefused(way == .revoke ? refused : held(refused), native, "after \(way)")
            ProbedMount.expectNative(try other.attempt(), native, "the other grant")
            if kind.lasts {
                try volume.mount()
                if way == .revoke { try fixture.restore("a") }
                try fixture.wait(until: "the grant is back") {
                    try Command.run(["ls", mountpoint + "/a"], as: owner).status == 0
                }
                ProbedMount.expectRefused(held(try probe.attempt()), native, "after it is back")
                try Probe.prepare(source, for: owner)
                let fresh = try Probe(below: mountpoint + "/a", as: owner)
                ProbedMount.expectNative(try fresh.attempt(), native, "held afterwards")
            }
            #expect(try probe.letGo().allSatisfy { $0.errno == "OK" })
        }

        @Test("A released filesystem can be unmounted after lock waiters were refused", arguments: ["fcntl", "ofd", "flock"])
        func waiters(lock: String) throws {
            let fixture = try MountFixture()
            let volume = try Volume(.ext4, at: "volume", in: fixture)
            let source = try fixture.directory("volume/a")
            try Data(count: 200).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            let holder = try Probe.role(["lock", mountpoint + "/a/file", lock, "try"])
            try holder.expect("OK")
            let waiter = try Probe.role(["lock", mountpoint + "/a/file", lock, "wait"])
            try waiter.expect("waiting")
            pause(milliseconds: 50)
            try fixture.grantfs("release", "a").orThrow()
            try waiter.expect("EACCES")
            let unmounted = try volume.unmount()
            #expect(unmounted.status == 0, "\(unmounted)")
        }

        @Test("A grant returns after its filesystem was remounted quickly")
        func fastRemount() throws {
            let fixture = try MountFixture()
            let volume = try Volume(.ext4, at: "volume", in: fixture)
            try fixture.grant(try fixture.directory("volume/a"))
            let mountpoint = try fixture.mount()
            let daemon = try fixture.daemon(at: mountpoint)
            try fixture.grantfs("release", "a").orThrow()
            // A stopped daemon does not look.
            kill(daemon, SIGSTOP)
            #expect(try volume.unmount().status == 0)
            try volume.mount()
            kill(daemon, SIGCONT)
            try fixture.wait(until: "the grant is back") {
                FileManager.default.fileExists(atPath: mountpoint + "/a")
            }
        }

        @Test("A release is unconfirmed until a hanging operation has ended")
        func hanging() throws {
            let fixture = try MountFixture()
            let source = try HangingSource("a", in: fixture)
            defer { source.end() }
            try source.file("file", size: 1 << 20)
            try fixture.grant(source.directory)
            let mountpoint = try fixture.mount()
            let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mountpoint + "/a/file"))
            try source.hang("read")
            let reader = try Child(["cat", mountpoint + "/a/file"], separateErrors: true)
            try fixture.wait(until: "it hangs") { try fixture.status().mounts[0].grants[0].inFlight > 0 }
            let released = try fixture.grantfs("release", "a")
            #expect(released.status == 3, "\(released)")
            #expect(try #require(reader.wait(), "it hangs") != 0)
            #expect(try Command.run(["umount", source.directory]).status != 0)
            source.goOn()
            try fixture.wait(until: "its filesystem is unmounted") {
                try Command.run(["umount", source.directory]).status == 0
            }
            try held.close()
        }
    }
}
