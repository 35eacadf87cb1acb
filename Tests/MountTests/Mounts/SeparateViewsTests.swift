import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Several views below one directory, each a mount of its own: `mount --views PATTERN`.
    @Suite struct SeparateViews {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            mountpoint = try fixture.directory("mount")
        }

        /// Grants directories with a file each.
        private func grantBoth() throws {
            for (view, name) in [("job-1", "held"), ("job-2", "other"), ("else", "hidden")] {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source, view: view)
            }
        }

        private func mount(options: String? = nil) throws {
            try fixture.grantfs(["mount", "--views", "job-*", mountpoint] + (options.map { ["-o", $0] } ?? [])).orThrow()
        }

        private func names(_ below: String = "") throws -> [String] {
            try Command.run(["ls", mountpoint + "/" + below], within: 30).orThrow().lines
        }

        private func read(_ path: String) throws -> Output { try Command.run(["cat", mountpoint + "/" + path], within: 30) }

        @Test("Separate views show each matching view in its own mount")
        func matching() throws {
            try grantBoth()
            try mount()
            #expect(try names() == ["job-1", "job-2"])
            #expect(try names("job-1") == ["held"] && names("job-2") == ["other"])
            #expect(try read("job-1/held/file").text == "held" && read("else/hidden/file").status != 0)
            #expect(fixture.mountpoints.filter { $0.hasPrefix(mountpoint) }.count == 3)
            let sources = try Command.run(["findmnt", "-rno", "SOURCE,FSTYPE", mountpoint + "/job-1"]).trimmed
            #expect(sources == "job-1 fuse.grantfs")
            for words in [["mkdir", "job-9"], ["touch", "x"], ["rmdir", "job-1"], ["mv", "job-1", "job-9"], ["chmod", "700", "."]] {
                let output = try Command.run(["sh", "-c", "cd \"$1\"; shift; exec \"$@\"", "sh", mountpoint] + words)
                #expect(output.status != 0, "\(words): \(output)")
            }
        }

        @Test("A separate view is mounted with its first grant")
        func live() throws {
            try grantBoth()
            try mount()
            try fixture.grant(fixture.base + "/source/other", view: "job-3")
            #expect(try names() == ["job-1", "job-2", "job-3"] && names("job-3") == ["other"])
            let held = try Child([
                "sh", "-c", "cd \"$1\"; while read -r line; do echo \"$(ls -m . 2>&1)\"; done", "sh", mountpoint + "/job-1",
            ])
            func look() throws -> String? {
                held.send("?")
                return held.line()
            }
            try fixture.grantfs("remove", "held", "--view", "job-1").orThrow()
            try fixture.wait(until: "it is not listed any more") { try names() == ["job-2", "job-3"] }
            #expect(try look() == "")
            try fixture.grant(fixture.base + "/source/held", name: "again", view: "job-1")
            #expect(try look() == "again")
            try fixture.wait(until: "it is listed again") { try names() == ["job-1", "job-2", "job-3"] }
            #expect(try read("job-1/again/file").text == "held")
        }

        @Test("A revocation in a separate view asks no other view")
        func revoked() throws {
            try grantBoth()
            try mount()
            let revoked = try fixture.revoke("held", "--view", "job-1")
            #expect(revoked.count == 1 && revoked[0].isConfirmed && revoked[0].mounts.map(\.mountpoint) == [mountpoint + "/job-1"])
            #expect(try read("job-1/held/file").errors.contains("Permission denied") && read("job-2/other/file").text == "other")
            let byPath = try fixture.grantfs("revoke", "--path", mountpoint + "/job-2/other", "--json").orThrow()
            #expect(try (byPath.decoded() as [RevocationDocument]).map(\.name) == ["other"])
        }

        @Test(
            "A held kernel lock in a view blocks no rename in another",
            .enabled(if: Identity.isRoot && Machine.hasFUSE, "needs root and /dev/fuse"))
        func renames() throws {
            let memory = try HangingSource("memory", in: fixture)
            try memory.file("pages", size: 64 * 4096)
            try grantBoth()
            for name in ["held", "other"] {
                for directory in ["a", "b"] { _ = try fixture.directory("source/\(name)/\(directory)") }
                try Data("x".utf8).write(to: URL(fileURLWithPath: fixture.base + "/source/\(name)/a/file"))
            }
            try mount()
            try memory.hang("read")
            let attack = try Attack("held-listing", [memory.directory + "/pages", mountpoint + "/job-1/held/a"])
            func rename(in directory: String) throws -> Child {
                let script = "import os, sys; os.rename(sys.argv[1] + '/a/file', sys.argv[1] + '/b/file'); print('renamed', flush=True)"
                return try Child(["python3", "-c", script, mountpoint + "/" + directory])
            }
            // Waits for the listed directory, and holds the lock for renames of its whole superblock.
            let waiting = try rename(in: "job-1/held")
            try fixture.wait(until: "the rename waits in the kernel") { Processes.isInKernel(waiting.pid) }
            let other = try rename(in: "job-2/other")
            #expect(other.line() == "renamed")
            #expect(try fixture.revoke("other", "--view", "job-2")[0].isConfirmed)
            attack.end()
            #expect(waiting.line() == "renamed")
        }

        @Test("A separate view is mounted again after its daemon dies")
        func death() throws {
            try grantBoth()
            try mount()
            let open = try Child([
                "sh", "-c", "exec 9<\"$1\"; echo open; read -r line; cat <&9; echo", "sh", mountpoint + "/job-2/other/file",
            ])
            #expect(open.line() == "open")
            try fixture.killDaemon(at: mountpoint + "/job-1")
            #expect(try read("job-2/other/file").text == "other")
            try fixture.wait(until: "the view is mounted again") { try read("job-1/held/file").text == "held" }
            open.send("go")
            #expect(open.line() == "other")
        }

        @Test(
            "Separate views leave no mounts at their end",
            arguments: ["unmount", "umount", "signal"])
        func ends(how: String) throws {
            try grantBoth()
            try mount()
            let daemons = try [mountpoint, mountpoint + "/job-1", mountpoint + "/job-2"].map { try fixture.daemon(at: $0) }
            let status = Processes.kernelText("/proc/\(daemons[0])/status").split(separator: "\n").first { $0.hasPrefix("PPid:") }
            let manager = try #require(status.flatMap { pid_t($0.dropFirst(5).trimmingCharacters(in: .whitespaces)) })
            if how == "unmount" {
                let user = try Child(["sh", "-c", "cd \"$1\"; echo in; read -r line", "sh", mountpoint + "/job-2/other"])
                #expect(user.line() == "in")
                let busy = try fixture.grantfs("unmount", mountpoint)
                #expect(busy.status == 1 && busy.errors.contains("in use"), "\(busy)")
                user.kill()
                try fixture.wait(until: "what was unmounted is mounted again") { try names("job-1") == ["held"] }
                // A daemon that has just mounted it may still have its root open.
                try fixture.wait(until: "nothing is in use") { try fixture.grantfs("unmount", mountpoint).status == 0 }
            } else if how == "umount" {
                try Command.run(Identity.isRoot ? ["umount", "-R", mountpoint] : ["fusermount3", "-uz", mountpoint]).orThrow()
            } else {
                kill(manager, SIGTERM)
            }
            try fixture.wait(until: "every process has ended") { !(daemons + [manager]).contains { Processes.isRunning($0) } }
            #expect(fixture.mountpoints.filter { $0.hasPrefix(mountpoint) }.isEmpty)
            #expect(try fixture.status().mounts.isEmpty)
        }

        @Test("A view's daemon is replaced by upgrade, and with -o recover after its death")
        func successors() throws {
            try grantBoth()
            try mount(options: "recover")
            let (old, path) = (try fixture.daemon(at: mountpoint + "/job-1"), mountpoint + "/job-1")
            let held = try Child([
                "sh", "-c", "exec 9<\"$1\"; echo open; while read -r line; do head -c 1 <&9; echo; done", "sh", path + "/held/file",
            ])
            #expect(held.line() == "open")
            try fixture.grantfs("upgrade", path).orThrow()
            #expect(try fixture.daemon(at: path) != old)
            held.send("?")
            #expect(held.line() == "h")
            try fixture.killDaemon(at: path)
            held.send("?")
            #expect(held.line() == "e")
        }

        @Test("The mount option views makes the source a pattern", .enabled(if: Identity.isRoot, "needs root"))
        func mountWords() throws {
            try grantBoth()
            // A line of fstab for an earlier version.
            try fixture.grantfs(["mount", "job-?", mountpoint, "-o", "views,separate"]).orThrow()
            #expect(try names() == ["job-1", "job-2"])
            let sources = try Command.run(["findmnt", "-no", "SOURCE,FSTYPE", mountpoint]).trimmed.split(separator: " ")
            #expect(sources == ["job-?", "fuse.grantfs"])
        }

        @Test("One view with `separate` and an invalid pattern are usage errors")
        func usage() throws {
            try grantBoth()
            let one = try fixture.grantfs("mount", "job-1", mountpoint, "-o", "separate")
            #expect(one.status == 2 && one.errors.contains("--views"), "\(one)")
            let slash = try fixture.grantfs("mount", "--views", "a/b", mountpoint)
            #expect(slash.status == 2 && slash.errors.contains("invalid pattern"), "\(slash)")
            let own = try fixture.grantfs("mount", "--below", String(repeating: "0", count: 32), "job-1", mountpoint)
            #expect(own.status != 0 && fixture.mountpoints.isEmpty, "\(own)")
        }

        @Test(
            "Separate views of a user require `user_allow_other`",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func ofAUser() throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture(owner: user)
            let mountpoint = try fixture.directory("mount")
            for (view, name) in [("job-1", "held"), ("job-2", "other")] {
                try fixture.grant(try fixture.source(name), view: view)
            }
            let mounted = try fixture.grantfs("mount", "--views", "job-*", mountpoint)
            let configuration = (try? String(contentsOfFile: "/etc/fuse.conf", encoding: .utf8)) ?? ""
            guard configuration.split(separator: "\n").contains("user_allow_other") else {
                #expect(mounted.status == 1 && mounted.errors.contains("users need user_allow_other"), "\(mounted)")
                #expect(fixture.mountpoints.isEmpty)
                return
            }
            try mounted.orThrow()
            #expect(try Command.run(["ls", mountpoint + "/job-1"], as: user).orThrow().lines == ["held"])
            // The names of views are the user's alone, though fusermount3 has to be let in.
            let mode = try Command.run(["stat", "-c", "%a", mountpoint], as: user).orThrow().trimmed
            #expect(mode == "500")
            #expect(try fixture.revoke("held", "--view", "job-1")[0].isConfirmed)
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try fixture.wait(until: "nothing is mounted") { fixture.mountpoints.isEmpty }
        }
    }
}
