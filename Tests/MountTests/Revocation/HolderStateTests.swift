import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A holder that is idle, or in a special state of the kernel, keeps no access and delays no
    /// revocation.
    @Suite struct AHolder {
        @Test("A stopped or frozen holder is refused when it continues", arguments: ["stopped", "frozen"])
        func still(how: String) throws {
            if how == "frozen", Group.unified == nil { return }
            let mounted = try ProbedMount(Situation())
            let native = try mounted.native()
            let probe = try mounted.probe(mounted.held)
            let group = how == "frozen" ? try Group(of: probe.pid) : nil
            if let group { try group.freeze(true) } else { kill(probe.pid, SIGSTOP) }
            #expect(try mounted.fixture.revoke("held")[0].isConfirmed)
            if let group { try group.freeze(false) } else { kill(probe.pid, SIGCONT) }
            ProbedMount.expectRefused(try probe.attempt(), native, how)
        }

        @Test(
            "A revocation ends a private, shared, mergeable or locked mapping with SIGBUS",
            arguments: ["private", "shared", "mergeable", "locked"])
        func mapped(how: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data(repeating: 0x41, count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            let holder = try Attack("mapping", [mountpoint + "/a/file", how])
            holder.send("look")
            #expect(holder.line() == "OK OK")
            #expect(try fixture.revoke("a")[0].isConfirmed)
            holder.send("look")
            #expect(holder.line() == "SIGBUS SIGBUS")
        }

        @Test(
            "A holder in its own mount namespace is refused after a revocation",
            .enabled(if: Identity.isRoot, "needs root"))
        func namespace() throws {
            let mounted = try ProbedMount(Situation())
            let (fixture, native) = (mounted.fixture, try mounted.native())
            let hidden = try fixture.directory("hidden")
            let script = "\"$1\" mount default \"$2\" && exec \"$3\" run \"$2/held\""
            let probe = try Probe(
                running: ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", Programs.grantfs, hidden, Programs.probe],
                environment: fixture.environment)
            #expect(!fixture.mountpoints.contains(hidden))
            let revoked = try fixture.revoke("held")
            #expect(revoked[0].isConfirmed)
            #expect(Set(revoked[0].mounts.map(\.mountpoint)) == [mounted.mountpoint, hidden])
            ProbedMount.expectRefused(try probe.attempt(), native, "in a namespace of its own")
        }

        @Test("A holder cannot make the kernel swap to a granted file", .enabled(if: Identity.isRoot, "needs root"))
        func swap() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data(count: 1 << 20).write(to: URL(fileURLWithPath: source + "/swap"))
            chmod(source + "/swap", 0o600)
            try Command.run(["mkswap", source + "/swap"]).orThrow()
            try fixture.grant(source)
            let mountpoint = try fixture.mount()
            #expect(try Command.run(["swapon", mountpoint + "/a/swap"]).status != 0)
            #expect(try fixture.revoke("a")[0].isConfirmed)
        }

        /// A control group with one process.
        private final class Group {
            /// Where control groups of version 2 are.
            static let unified = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].first { access($0 + "/cgroup.procs", W_OK) == 0 }
            private let path: String
            private let pid: Int32

            init(of pid: Int32) throws {
                self.pid = pid
                path = (Group.unified ?? "") + "/grantfs-test-\(pid)"
                try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
                try write("\(pid)", path + "/cgroup.procs")
            }

            deinit {
                try? freeze(false)
                try? write("\(pid)", (Group.unified ?? "") + "/cgroup.procs")
                rmdir(path)
            }

            func freeze(_ isFrozen: Bool) throws {
                try write(isFrozen ? "1" : "0", path + "/cgroup.freeze")
                let deadline = Machine.milliseconds + 30_000
                while Processes.kernelText(path + "/cgroup.events").contains("frozen \(isFrozen ? 0 : 1)") {
                    if Machine.milliseconds > deadline { throw TestFailure("the group does not change its state") }
                    usleep(1000)
                }
            }

            private func write(_ text: String, _ file: String) throws {
                let descriptor = open(file, O_WRONLY | O_CLOEXEC)
                defer { close(descriptor) }
                guard descriptor >= 0, Glibc.write(descriptor, text, text.utf8.count) > 0 else { throw TestFailure("cannot write \(file)") }
            }
        }
    }
}
