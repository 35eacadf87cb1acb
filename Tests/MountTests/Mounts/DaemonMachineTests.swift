import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What the machine does to a daemon: its limits, its memory, its clock.
    @Suite struct DaemonMachineTests {
        /// Control groups that account for memory, of version 1 or 2. Groups can be made there.
        private static let memoryGroups: (directory: String, limit: String, usage: String)? = {
            for (directory, limit, usage) in [
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
                ("/sys/fs/cgroup", "memory.max", "memory.current"),
            ] {
                let probe = directory + "/grantfs-test-probe-\(getpid())"
                guard Identity.isRoot, mkdir(probe, 0o755) == 0 else { continue }
                defer { rmdir(probe) }
                if access(probe + "/" + limit, W_OK) == 0 { return (directory, limit, usage) }
            }
            return nil
        }()

        private static func write(_ text: String, to file: String) throws {
            let descriptor = open(file, O_WRONLY | O_CLOEXEC)
            defer { close(descriptor) }
            guard descriptor >= 0, Glibc.write(descriptor, text, text.utf8.count) > 0 else { throw TestFailure("cannot write \(file)") }
        }

        @Test("A file size limit of a daemon fails large writes with EFBIG and does not end it")
        func fileSize() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mountpoint = try fixture.directory("mount")
            try Command.run(
                ["prlimit", "--fsize=4194304:4194304", Programs.grantfs, "mount", "default", mountpoint], environment: fixture.environment
            ).orThrow()
            let daemon = try fixture.daemon(at: mountpoint)
            let output = try Command.run(["dd", "if=/dev/zero", "of=\(mountpoint)/a/large", "bs=1M", "count=8"])
            #expect(output.status != 0 && output.errors.contains("File too large"), "\(output)")
            #expect(try Command.run(["truncate", "-s", "1G", mountpoint + "/a/sparse"]).status != 0)
            try Command.shell("echo text > \"$1/a/small\"; cat \"$1/a/small\"", mountpoint).orThrow()
            #expect(try fixture.daemon(at: mountpoint) == daemon && Processes.isRunning(daemon))
        }

        @Test(
            "A daemon killed by lack of memory serves nothing and loses no write",
            .enabled(if: memoryGroups != nil, "needs root and control groups of memory that can be made"))
        func outOfMemory() throws {
            let groups = try #require(Self.memoryGroups)
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Command.shell("cd \"$1\"; for d in $(seq 40); do mkdir d$d; (cd d$d; seq 500 | xargs touch); done", source).orThrow()
            try Data(count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mountpoint = try fixture.directory("mount")
            let group = groups.directory + "/grantfs-test-\(getpid())"
            try FileManager.default.createDirectory(atPath: group, withIntermediateDirectories: false)
            defer { rmdir(group) }
            try Command.run(
                ["sh", "-c", "echo $$ > \"$1/cgroup.procs\"; exec \"$2\" mount default \"$3\"", "sh", group, Programs.grantfs, mountpoint],
                environment: fixture.environment
            ).orThrow()
            let daemon = try fixture.daemon(at: mountpoint)
            let holder = try Child([Programs.attacker, "outlive", mountpoint + "/a/file", "map"])
            try holder.expect("ready")
            holder.send("?")
            #expect(holder.line()?.hasPrefix("map read") == true)
            let usage = try #require(Int(Processes.kernelText(group + "/" + groups.usage).split(separator: "\n").first ?? ""))
            try Self.write("\(usage + 1_000_000)", to: group + "/" + groups.limit)
            // Away from the holder's file, because a look at it would make the kernel request it
            // again.
            _ = try Command.shell("find \"$1\"/a/d* -size +1 || true", mountpoint)
            try fixture.wait(until: "it is ended") { !Processes.isRunning(daemon) }
            try fixture.wait(until: "the mapping is gone") {
                holder.send("?")
                return holder.line()?.hasPrefix("map SIGBUS") == true
            }
            #expect(try fixture.grantfs("status").status == 1)
            #expect(try Data(contentsOf: URL(fileURLWithPath: source + "/file")).dropFirst(4096).prefix(7) == Data("written".utf8))
            try fixture.wait(until: "the group is empty") { Processes.kernelText(group + "/cgroup.procs").isEmpty }
        }

        @Test(
            "A grant that expired stays expired after the clock is set back",
            .enabled(if: Command.exists("clang"), "needs clang"))
        func clock() throws {
            let fixture = try MountFixture()
            let shift = fixture.base + "/shift.so"
            let code = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../ClockShift/shift.c").standardized.path
            try Command.run(["clang", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", shift, code]).orThrow()
            let seconds = fixture.base + "/seconds"
            func set(_ ahead: Int) throws { try Data("\(ahead)".utf8).write(to: URL(fileURLWithPath: seconds), options: .atomic) }
            try set(0)
            fixture.switches["LD_PRELOAD"] = shift
            fixture.switches["CLOCK_SHIFT"] = seconds
            for name in ["a", "b"] {
                let source = try fixture.source(name)
                try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source, name: nil, view: nil, "--expires", name == "a" ? "30m" : "3h")
            }
            let mountpoint = try fixture.mount()
            let held = try Child(["sh", "-c", "exec 3<\"$1\"; echo ready; read x; cat <&3", "sh", mountpoint + "/a/file"])
            try held.expect("ready")
            func read(_ name: String) throws -> String { try Command.run(["cat", "\(mountpoint)/\(name)/file"]).text }
            // Back, before it expires: it is there as long as its time has not come.
            try set(-600)
            usleep(1_500_000)
            #expect(try read("a") == "text")
            try set(31 * 60)
            try fixture.wait(until: "it has expired") { try read("a").isEmpty }
            #expect(try read("b") == "text", "the other's time has not come")
            try set(-3600)
            usleep(2_500_000)
            #expect(try read("a").isEmpty && read("b") == "text")
            #expect(try fixture.list("--all").first { $0.name == "a" }?.state == "expired")
            held.send("")
            #expect(held.line() == nil, "what was held stays refused")
        }
    }
}
