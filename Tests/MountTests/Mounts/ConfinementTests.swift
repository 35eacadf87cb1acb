import Foundation
import TestSupport
import Testing

/// What a daemon may still do once it serves.
extension MountTests {
    @Suite struct AConfinedDaemon {
        /// The fields of /proc/PID/task/TID/status, for each thread.
        private func threads(_ pid: pid_t) throws -> [[String: String]] {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task").compactMap { thread in
                let text = Processes.kernelText("/proc/\(pid)/task/\(thread)/status")
                // One that has ended since then has nothing to show.
                if text.isEmpty { return nil }
                let fields = text.split(separator: "\n").map {
                    $0.split(separator: ":", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
                }
                return Dictionary(fields.filter { $0.count == 2 }.map { ($0[0], $0[1]) }) { first, _ in first }
            }
        }

        private func mask(_ text: String?) -> UInt64 { text.flatMap { UInt64($0, radix: 16) } ?? .max }

        @Test("Every thread of the daemon has a system call filter", arguments: [true, false])
        func filtered(byUser: Bool) throws {
            if byUser, !Machine.usersCanMount { return }
            let fixture = try MountFixture(owner: byUser ? try #require(Machine.plainUser) : .current)
            try fixture.grant(try fixture.source("docs"))
            let mountpoint = try fixture.mount()
            let threads = try threads(try fixture.daemon(at: mountpoint))
            #expect(threads.count >= 4, "\(threads.count) threads")
            for thread in threads {
                #expect(thread["Seccomp"] == "2" && thread["NoNewPrivs"] == "1", "\(thread["Name"] ?? "")")
            }
        }

        @Test(
            "A daemon that cannot unshare its umask does not mount",
            .enabled(if: Identity.isRoot))
        func noOwnMask() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("docs"))
            // seccomp(2), a program for the kernel: the number of a call that is unshare's gives EPERM.
            let script = """
                import ctypes, os, platform, struct, sys
                number = 272 if platform.machine() == 'x86_64' else 97
                lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
                code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
                program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(lines), ctypes.addressof(code)))
                libc = ctypes.CDLL(None)
                assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
                os.execv(sys.argv[1], sys.argv[1:])
                """
            let mountpoint = try fixture.directory("mount")
            let result = try Command.run(
                ["python3", "-c", script, Programs.grantfs, "mount", "default", mountpoint], environment: fixture.environment)
            #expect(result.status == 1 && result.errors.contains("unshare(2)"), "\(result)")
            #expect(!Processes.kernelText("/proc/self/mounts").contains(mountpoint))
        }

        @Test("A daemon keeps only the capabilities of a file server", .enabled(if: Identity.isRoot))
        func capabilities() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("docs"))
            let mountpoint = try fixture.mount()
            try Command.run(["ls", mountpoint + "/docs"]).orThrow()
            // capabilities(7): chown, the DACs, fowner, fsetid, setgid, setuid, linux_immutable, sys_admin, sys_nice, sys_resource, mknod, lease
            let numbers: [UInt64] = [0, 1, 2, 3, 4, 6, 7, 9, 21, 23, 24, 27, 28]
            let kept = numbers.reduce(UInt64(0)) { $0 | 1 << $1 }
            let threads = try threads(try fixture.daemon(at: mountpoint))
            #expect(threads.count >= 4, "\(threads.count) threads")
            for thread in threads {
                for field in ["CapPrm", "CapEff", "CapBnd"] {
                    #expect(mask(thread[field]) & ~kept == 0, "\(thread["Name"] ?? "") \(field)")
                }
                #expect(mask(thread["CapInh"]) == 0 && mask(thread["CapAmb"]) == 0)
            }
            // One that has just begun has its name first.
            try fixture.wait(until: "no thread that serves requests can mount") {
                let workers = try self.threads(try fixture.daemon(at: mountpoint)).filter { $0["Name"] == "grantfs-worker" }
                return !workers.isEmpty
                    && workers.allSatisfy {
                        // They also lack the capabilities to exceed limits.
                        mask($0["CapPrm"]) & (1 << 21 | 1 << 23) == 0 && mask($0["CapEff"]) & (1 << 24) == 0
                    }
            }
        }

        @Test(
            "A confined daemon of a user unmounts on a signal",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func unmountsAsUser() throws {
            let fixture = try MountFixture(owner: try #require(Machine.plainUser))
            try fixture.grant(try fixture.source("docs"))
            let mountpoint = try fixture.mount()
            let daemon = try fixture.daemon(at: mountpoint)
            kill(daemon, SIGTERM)
            try fixture.wait(until: "the daemon is gone") { !Processes.isRunning(daemon) }
            #expect(!Processes.kernelText("/proc/self/mountinfo").contains(" \(mountpoint) "))
        }

        @Test("A confined process cannot start programs or reach a network")
        func calls() throws {
            let output = try Command.run([Programs.confinedProbe]).orThrow()
            var results: [String: String] = [:]
            for line in output.lines where !line.contains(":") {
                let words = line.split(separator: " ").map(String.init)
                if words.count == 2 { results[words[0]] = words[1] }
            }
            let allowed = ["open", "socket-unix", "unshare-fs", "thread"]
            let refused = [
                "socket-inet", "socket-netlink", "unshare-mounts", "unshare-users", "mount", "setuid", "chroot", "sethostname", "acct",
                "swapoff",
                "setns", "ptrace", "personality", "fork", "spawn",
            ]
            for name in allowed { #expect(results[name] == "0", "\(name)") }
            for name in refused { #expect(results[name] == "\(EPERM)", "\(name)") }
            #expect(results["umount"] == "\(ENOENT)")
        }
    }
}
