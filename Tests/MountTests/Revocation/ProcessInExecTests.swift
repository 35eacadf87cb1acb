import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A process in an execve(2) that never ends, because the exec closes a file of a filesystem that does not answer. Any process that
    /// inspects it through /proc waits in the kernel. Other tests inspect all processes, so these run alone.
    @Suite(
        .serialized,
        .enabled(
            if: AHeldKernelLock.isPossible && ProcessInfo.processInfo.environment["GRANTFS_ALONE"] != nil,
            "needs root, /dev/fuse, a plain user, and GRANTFS_ALONE"))
    struct AProcessInExec {
        private struct Scene {
            let fixture: MountFixture
            let mount: String
            let hanging: HangingSource
            let user: Identity

            init() throws {
                fixture = try MountFixture()
                user = try #require(Machine.plainUser)
                let source = try fixture.source("a")
                try Data(repeating: 0, count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
                chmod(source + "/file", 0o666)
                try fixture.grant(source)
                mount = try fixture.mount(options: "allow_other")
                hanging = try HangingSource("hanging", in: fixture, squashes: true)
                try hanging.file("closed")
                chmod(hanging.behind + "/closed", 0o666)
            }

            /// Returns when the kernel lets no process inspect it.
            func awaitExec(of pid: Int32) throws {
                try fixture.wait(until: "it hangs in exec") {
                    try Command.run(["timeout", "-s", "KILL", "0.3", "cat", "/proc/\(pid)/stat"]).status != 0
                }
            }
        }

        @Test("A process in exec(2) is reported as unseen and leaves a dead mount unconfirmed")
        func holders() throws {
            let scene = try Scene()
            let fixture = scene.fixture
            defer { scene.hanging.end() }
            let holder = try Child([Programs.attacker, "outlive", scene.mount + "/a/file", "map", "fd"])
            try holder.expect("ready")
            let attack = try Attack("in-exec", [scene.hanging.directory + "/closed"], as: scene.user)
            defer { attack.end() }
            try scene.hanging.hang("flush")
            attack.send("go")
            try scene.awaitExec(of: attack.pid)

            let live = try fixture.grantfs("status", "--json", within: 30)
            #expect(live.status == 0 && Self.pids(live, "holders") == [holder.pid] && Self.pids(live, "unseen") == [attack.pid], "\(live)")
            // The daemon of the mount can withdraw everything, even from an invisible process.
            #expect(try fixture.grantfs("revoke", "a", within: 30).status == 0)
            try fixture.restore("a")

            let again = try Child([Programs.attacker, "outlive", scene.mount + "/a/file", "map"])
            try again.expect("ready")
            let daemon = try fixture.daemon(at: scene.mount)
            kill(daemon, SIGKILL)
            try fixture.wait(until: "the daemon has ended") { kill(daemon, 0) != 0 }
            let dead = try fixture.grantfs("status", "--json", within: 30)
            #expect(dead.status == 1 && Self.pids(dead, "unseen") == [attack.pid], "\(dead)")
            let metrics = try fixture.grantfs("metrics", within: 30)
            #expect(metrics.status == 0, "\(metrics)")
            _ = try fixture.grantfs("doctor", within: 30)
            let ended = try fixture.grantfs("revoke", "a", "--kill", "--json", within: 30)
            #expect(ended.status == 3 && Self.pids(ended, "unseen") == [attack.pid], "\(ended)")
            #expect(again.wait() == -SIGKILL && holder.wait() == -SIGKILL, "who holds something is ended")
            #expect(ended.text.contains("does not show") && ended.text.contains("\(attack.pid)"), "\(ended)")
            // A new mount in its place works meanwhile.
            try fixture.grantfs(["mount", "default", scene.mount], within: 30).orThrow()
            try fixture.grantfs(["restore", "a"], within: 30).orThrow()
            #expect(try Command.run(["cat", scene.mount + "/a/file"], within: 30).status == 0)
            scene.hanging.end()
            try fixture.wait(until: "it can be seen again") {
                try fixture.grantfs(["revoke", "a", "--timeout", "1"], within: 30).status == 0
            }
        }

        @Test("A holder in exec(2) is found once it can be inspected")
        func holding() throws {
            let scene = try Scene()
            defer { scene.hanging.end() }
            let attack = try Attack("in-exec", [scene.hanging.directory + "/closed", scene.mount + "/a/file"], as: scene.user)
            defer { attack.end() }
            try scene.hanging.hang("flush")
            attack.send("go")
            try scene.awaitExec(of: attack.pid)
            let daemon = try scene.fixture.daemon(at: scene.mount)
            kill(daemon, SIGKILL)
            try scene.fixture.wait(until: "the daemon has ended") { kill(daemon, 0) != 0 }
            let unseen = try scene.fixture.grantfs("revoke", "a", "--json", within: 30)
            #expect(unseen.status == 3 && Self.pids(unseen, "unseen") == [attack.pid], "\(unseen)")
            scene.hanging.goOn()
            try scene.fixture.wait(until: "it is seen") {
                let seen = try scene.fixture.grantfs("revoke", "a", "--json", within: 30)
                return seen.status == 3 && Self.pids(seen, "holders") == [attack.pid] && Self.pids(seen, "unseen").isEmpty
            }
        }

        @Test("A presenter in exec(2) delays a claim only until its timeout")
        func presenter() throws {
            let scene = try Scene()
            defer { scene.hanging.end() }
            let place = scene.mount + "/a/file"
            let (presenter, claimant) = (try scene.fixture.presenting(place, patience: 1), try scene.fixture.claimant())
            defer { presenter.kill() }
            try scene.hanging.hang("flush")
            presenter.send("exec " + scene.hanging.directory + "/closed")
            try presenter.expect("exec")
            try scene.awaitExec(of: presenter.pid)
            for _ in 0..<2 {
                claimant.send("write \(place)")
                #expect(claimant.line(within: 30) == "granted")
                claimant.send("end")
                #expect(claimant.line(within: 30) == "granted")
            }
            #expect(try scene.fixture.grantfs("revoke", "a", "--grace", "1s", within: 30).status == 0)
            #expect(try Command.run(["cat", place], within: 30).status != 0)
        }

        /// The process numbers in every list of this name.
        private static func pids(_ output: Output, _ name: String) -> [Int32] {
            func found(_ value: Any) -> [Int32] {
                if let list = value as? [Any] { return list.flatMap(found) }
                guard let object = value as? [String: Any] else { return [] }
                let here = (object[name] as? [[String: Any]] ?? []).compactMap { ($0["pid"] as? NSNumber)?.int32Value }
                return here + object.filter { $0.key != name }.sorted { $0.key < $1.key }.flatMap { found($0.value) }
            }
            return (try? JSONSerialization.jsonObject(with: Data(output.text.utf8))).map(found) ?? []
        }
    }
}
