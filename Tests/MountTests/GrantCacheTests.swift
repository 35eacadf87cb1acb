import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A grant with a cache mode of its own, in a mount with another: `grant --cache`, `set --cache`.
    @Suite(.enabled(if: Identity.isRoot, "only root's mounts have several cache modes")) struct ACacheModeOfAGrant {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            mountpoint = try fixture.directory("mount")
            for (name, mode) in [("alone", "exclusive"), ("other", nil)] {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grantfs(["grant", source] + (mode.map { ["--cache", $0] } ?? [])).orThrow()
            }
        }

        private func read(_ path: String) throws -> Output { try Command.run(["cat", mountpoint + "/" + path], within: 30) }

        private func names() throws -> [String] { try Command.run(["ls", mountpoint], within: 30).orThrow().lines }

        /// What is mounted at a name: its device, and whether the kernel lets nobody write.
        private func mounted(_ name: String) throws -> (device: String, isReadOnly: Bool)? {
            let output = try Command.run(["findmnt", "-rno", "MAJ:MIN,VFS-OPTIONS", mountpoint + "/" + name])
            let words = output.trimmed.split(separator: " ").map(String.init)
            guard output.status == 0, words.count == 2 else { return nil }
            return (words[0], words[1].split(separator: ",").contains("ro"))
        }

        /// A program that works in a directory and has a file of it open. It says what it gets for each line it is sent.
        private func holder(of name: String) throws -> Child {
            let loop = "while read -r line; do echo $(cat /proc/self/fd/5 2>&1; cat file 2>&1; ls . 2>&1); done"
            return try Child(["sh", "-c", "cd \"$1\" && exec 5<file && \(loop)", "sh", mountpoint + "/" + name])
        }

        private func ask(_ holder: Child) -> String {
            holder.send("?")
            return holder.line() ?? ""
        }

        @Test("the mount answers with every grant in its place, the one in a mount of its own, and lists them all")
        func shown() throws {
            try fixture.mount()
            #expect(try names() == ["alone", "other"])
            #expect(try read("alone/file").text == "alone" && read("other/file").text == "other")
            #expect(try mounted("alone") != nil && mounted("other") == nil)
            #expect(try fixture.list().map(\.name) == ["alone", "other"])
            let listed = try fixture.grantfs("list", "--json").orThrow().text
            #expect(listed.contains("\"cache\":\"exclusive\"") && listed.contains("\"cache\":null"))
        }

        @Test("opening what is cached makes no request in an exclusive grant, and does in the other")
        func requests() throws {
            try fixture.mount()
            func openings(_ name: String) throws -> Double {
                for _ in 0..<2 { #expect(try read(name + "/file").text == name) }
                let before = try fixture.metrics().sum("grantfs_requests_total", ["kind": "OPEN"])
                for _ in 0..<20 { _ = try read(name + "/file") }
                return try fixture.metrics().sum("grantfs_requests_total", ["kind": "OPEN"]) - before
            }
            #expect(try openings("other") == 20)
            #expect(try openings("alone") == 0)
        }

        @Test("a revocation refuses new paths, descriptors and working directories; restored, the grant is there when the command returns")
        func revoked() throws {
            try fixture.mount()
            let holder = try holder(of: "alone")
            #expect(ask(holder).contains("alone"))
            for round in 0..<5 {
                let revoked = try fixture.revoke("alone")
                #expect(revoked[0].isConfirmed && revoked[0].mounts.count == 2)
                let after = try read("alone/file")
                #expect(after.status != 0 && after.errors.contains("Permission denied"), "round \(round): \(after)")
                #expect(try names() == ["other"])
                try fixture.restore("alone")
                #expect(try read("alone/file").text == "alone", "round \(round)")
                #expect(try names() == ["alone", "other"])
            }
            let line = ask(holder)
            #expect(!line.contains("alone") && line.contains("Permission denied"), "\(line)")
        }

        @Test(
            "set --cache moves a grant to another mount and back: what was open is refused, and the name leads on at once",
            arguments: [("other", ["exclusive", "mount"]), ("alone", ["none", "exclusive", "shared", "mount"])])
        func changed(_ name: String, _ modes: [String]) throws {
            try fixture.mount()
            for mode in modes {
                let (holder, before) = (try holder(of: name), try mounted(name)?.device)
                #expect(ask(holder).contains(name))
                try fixture.grantfs("set", name, "--cache", mode).orThrow()
                #expect(try read(name + "/file").text == name, "\(mode)")
                #expect(try (mounted(name) != nil) == ["exclusive", "none"].contains(mode), "\(mode)")
                // Both words mean the mode of this mount.
                if try before == mounted(name)?.device { continue }
                let line = ask(holder)
                #expect(line.contains("Permission denied") && !line.contains(name + " "), "\(mode): \(line)")
            }
            #expect(try names() == ["alone", "other"])
        }

        @Test("the grant is there whenever the command returns, though the kernel has the name of what was shown there before")
        func backAndForth() throws {
            try fixture.mount()
            let file = URL(fileURLWithPath: mountpoint + "/alone/file")
            for round in 0..<12 {
                for mode in ["mount", "exclusive"] {
                    // By no other process: the name is as fresh as can be when the command begins.
                    _ = try? Data(contentsOf: file)
                    try fixture.grantfs("set", "alone", "--cache", mode).orThrow()
                    #expect((try? Data(contentsOf: file)) == Data("alone".utf8), "round \(round), \(mode)")
                }
            }
        }

        @Test("grantfs upgrade replaces the daemon of a mode, which shows what it showed, and leaves the main one to its own")
        func upgraded() throws {
            try fixture.mount()
            let holder = try holder(of: "alone")
            #expect(ask(holder).contains("alone"))
            let before = try fixture.status().mounts
            #expect(try fixture.grantfs("upgrade", "--all").status == 3)
            let after = try fixture.status().mounts
            for mount in after {
                let old = try #require(before.first { $0.mountpoint == mount.mountpoint })
                #expect((mount.pid == old.pid) == (mount.mountpoint == mountpoint))
                #expect(mount.grants.map(\.name) == [mount.mountpoint == mountpoint ? "other" : "alone"])
            }
            #expect(ask(holder).contains("alone"))
            #expect(try fixture.revoke("alone")[0].isConfirmed && !ask(holder).contains("alone"))
            holder.kill()
            try fixture.grantfs("unmount", mountpoint).orThrow()
        }

        @Test("a read-only grant is read-only to the kernel as well, and follows each change of its access")
        func readOnly() throws {
            try fixture.grantfs("set", "alone", "--access", "read-only").orThrow()
            try fixture.mount()
            #expect(try mounted("alone")?.isReadOnly == true)
            #expect(try Command.run(["touch", mountpoint + "/alone/new"]).errors.contains("Read-only file system"))
            try fixture.grantfs("set", "alone", "--access", "read-write").orThrow()
            try Command.run(["touch", mountpoint + "/alone/new"]).orThrow()
            #expect(try mounted("alone")?.isReadOnly == false)
            try fixture.grantfs("set", "alone", "--access", "read-only").orThrow()
            #expect(try Command.run(["touch", mountpoint + "/alone/newer"]).errors.contains("Read-only file system"))
        }

        @Test("a new name, a grant that comes later and one that is removed are followed")
        func live() throws {
            try fixture.mount()
            try fixture.grantfs("set", "alone", "--name", "renamed").orThrow()
            let made = try mounted("renamed")
            try Command.run(["umount", mountpoint + "/renamed"]).orThrow()
            try fixture.wait(until: "what was unmounted by itself is mounted again") { try mounted("renamed")?.device == made?.device }
            #expect(try names() == ["other", "renamed"] && read("renamed/file").text == "alone" && read("alone/file").status != 0)
            let later = try fixture.source("later")
            try Data("later".utf8).write(to: URL(fileURLWithPath: later + "/file"))
            try fixture.grantfs("grant", later, "--cache", "none").orThrow()
            #expect(try read("later/file").text == "later" && mounted("later") != nil)
            try fixture.grantfs("remove", "later").orThrow()
            #expect(try names() == ["other", "renamed"])
            let gone = try Command.run(["stat", mountpoint + "/later"])
            #expect(gone.errors.contains("No such file or directory"), "\(gone)")
        }

        @Test("grantfs unmount and umount -R take all of it away, and leave neither a process nor a file", arguments: [true, false])
        func unmounted(_ isOwnCommand: Bool) throws {
            try fixture.mount()
            #expect(try read("alone/file").text == "alone")
            if isOwnCommand {
                try fixture.grantfs("unmount", mountpoint).orThrow()
            } else {
                try Command.run(["umount", "-R", mountpoint]).orThrow()
            }
            try fixture.wait(until: "nothing is mounted") { fixture.mountpoints.isEmpty }
            try fixture.wait(until: "nothing is left in the store") {
                try FileManager.default.contentsOfDirectory(atPath: fixture.store + "/run").isEmpty
            }
        }

        @Test("when the process that has made the mounts is killed, its grant is refused, and the others go on")
        func killed() throws {
            try fixture.mount()
            let holder = try holder(of: "alone")
            #expect(ask(holder).contains("alone"))
            let maker = Processes.parent(of: try fixture.daemon(at: mountpoint))
            #expect(maker > 1 && kill(maker, SIGKILL) == 0)
            try fixture.wait(until: "it is refused") { try read("alone/file").status != 0 }
            #expect(!ask(holder).contains("alone"))
            #expect(try read("other/file").text == "other")
        }

        @Test("one that was revoked and restored before the process that mounts has seen either is mounted anew")
        func atOnce() throws {
            try fixture.mount()
            let maker = Processes.parent(of: try fixture.daemon(at: mountpoint))
            #expect(maker > 1 && kill(maker, SIGSTOP) == 0)
            defer { kill(maker, SIGCONT) }
            #expect(try fixture.revoke("alone")[0].isConfirmed)
            let restoring = try Child(
                [Programs.grantfs(for: .current), "restore", "alone", "--timeout", "60"], environment: fixture.environment)
            try fixture.wait(until: "it is recorded") { try fixture.list().map(\.name) == ["alone", "other"] }
            #expect(kill(maker, SIGCONT) == 0 && restoring.wait() == 0)
            try fixture.wait(until: "it is shown") { try read("alone/file").text == "alone" }
        }

        @Test("as long as its directory is not mounted, it is refused, and never an empty directory")
        func notYet() throws {
            try fixture.mount()
            let maker = Processes.parent(of: try fixture.daemon(at: mountpoint))
            #expect(maker > 1 && kill(maker, SIGSTOP) == 0)
            defer { kill(maker, SIGCONT) }
            let setting = try Child(
                [Programs.grantfs(for: .current), "set", "other", "--cache", "exclusive", "--timeout", "60"],
                environment: fixture.environment)
            try fixture.wait(until: "it is refused") { try read("other/file").errors.contains("Permission denied") }
            for _ in 0..<20 {
                let listed = try Command.run(["ls", mountpoint + "/other"])
                #expect(listed.status != 0 && listed.errors.contains("Permission denied"), "\(listed)")
                usleep(10_000)
            }
            #expect(kill(maker, SIGCONT) == 0 && setting.wait() == 0)
            #expect(try read("other/file").text == "other")
        }

        @Test("when the daemon of the mode is killed, it is started again, and its grant is there")
        func restarted() throws {
            try fixture.mount()
            let own = try #require(try fixture.status().mounts.first { $0.mountpoint != mountpoint })
            #expect(kill(own.pid, SIGKILL) == 0)
            try fixture.wait(until: "it is shown again") { try read("alone/file").text == "alone" }
            #expect(try read("other/file").text == "other")
        }

        @Test("a mount that has the mode itself, and one with recover, show it as everything else")
        func otherMounts() throws {
            try fixture.mount(options: "cache=exclusive")
            #expect(try mounted("alone") == nil && read("alone/file").text == "alone" && read("other/file").text == "other")
            try fixture.grantfs("unmount", mountpoint).orThrow()
            let said = try fixture.grantfs("mount", "default", mountpoint, "-o", "recover").orThrow()
            #expect(said.errors.contains("recover"))
            #expect(try mounted("alone") == nil && read("alone/file").text == "alone")
        }

        @Test("a file can have none, nor a grant of the fleet; a wrong word is an error of usage; granting again says how to change it")
        func refused() throws {
            let file = fixture.base + "/outside/report"
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            let output = try fixture.grantfs("grant", file, "--cache", "exclusive")
            #expect(output.status == 2 && output.errors.contains("for directories"), "\(output)")
            try fixture.grantfs("grant", file).orThrow()
            #expect(try fixture.grantfs("set", "report", "--cache", "none").status == 2)
            #expect(try fixture.grantfs("set", "other", "--cache", "quick").status == 2)
            #expect(try fixture.grantfs("grant", fixture.base + "/source/other", "--fleet", "--cache", "none").status == 2)
            let again = try fixture.grantfs("grant", fixture.base + "/source/other", "--cache", "none")
            #expect(again.status != 0 && again.errors.contains("set other --cache none"), "\(again)")
        }

        @Test("export writes it, apply reads it, and changes what differs")
        func declared() throws {
            let text = try fixture.grantfs("export").orThrow().text
            #expect(text.contains("cache = \"exclusive\""))
            let file = fixture.base + "/grants.toml"
            let changed = text.replacingOccurrences(of: "cache = \"exclusive\"", with: "cache = \"none\"")
            try Data(changed.utf8).write(to: URL(fileURLWithPath: file))
            let applied = try fixture.grantfs("apply", file, "--yes").orThrow()
            #expect(applied.text.contains("cache exclusive → none"), "\(applied)")
            #expect(try fixture.grantfs("export").orThrow().text.contains("cache = \"none\""))
        }

        @Test("a mount that was made before any grant had a mode goes on with its own, and that is said")
        func later() throws {
            try fixture.grantfs("set", "alone", "--cache", "mount").orThrow()
            try fixture.mount()
            let said = try fixture.grantfs("set", "alone", "--cache", "exclusive").orThrow()
            #expect(said.errors.contains(mountpoint) && said.errors.contains("mounts it again"), "\(said)")
            #expect(try mounted("alone") == nil && read("alone/file").text == "alone")
        }
    }

    /// `run --grant DIR:exclusive`.
    @Suite(.enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here")) struct ACacheModeInASandbox {
        /// Who can have sandboxes here.
        private static let owners = [Identity.current] + (Machine.usersCanMount ? [Machine.plainUser].compactMap(\.self) : [])

        @Test("shows each grant in its place, at its own path too, the one by a mount of its own, and leaves nothing", arguments: owners)
        func shown(_ owner: Identity) throws {
            let fixture = try MountFixture(owner: owner)
            for name in ["alone", "other"] {
                let file = try fixture.source(name) + "/file"
                try Data(name.utf8).write(to: URL(fileURLWithPath: file))
                chown(file, owner.uid, owner.gid)
            }
            let source = fixture.base + "/source"
            let script = """
                cat \(source)/alone/file \(source)/other/file /grants/alone/file; echo
                touch /grants/alone/new \(source)/other/new; stat -c %d \(source)/alone \(source)/other /grants/alone | uniq | wc -l
                """
            let output = try fixture.grantfs(
                "run", "--grant", source + "/alone:exclusive", "--grant", source + "/other", "--", "sh", "-c", script)
            #expect(output.lines == ["aloneotheralone", "3"], "\(output)")
            for name in ["alone", "other"] { #expect(FileManager.default.fileExists(atPath: source + "/\(name)/new")) }
            #expect(try fixture.list("--all").isEmpty && fixture.mountpoints.isEmpty)
            #expect(try FileManager.default.contentsOfDirectory(atPath: fixture.store + "/run").isEmpty)
        }

        @Test("takes it back while the program runs: what is open and what is named is refused")
        func revoked() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("alone")
            try Data("alone".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            let loop = "exec 5<file; while read -r line; do echo $(cat /proc/self/fd/5 file /grants/alone/file 2>&1); done"
            let program = try Child(
                [Programs.grantfs(for: .current), "run", "--grant", source + ":exclusive", "--", "sh", "-c", "cd \(source); \(loop)"],
                environment: fixture.environment)
            program.send("?")
            #expect(program.line() == "alonealonealone")
            let revoked = try fixture.revoke("alone")
            #expect(revoked[0].isConfirmed)
            program.send("?")
            let line = program.line() ?? ""
            #expect(!line.contains("alonealone") && line.components(separatedBy: "Permission denied").count == 4, "\(line)")
            program.closeInput()
            #expect(program.wait() == 0)
        }

        @Test("a directory whose name ends in :exclusive is named with :rw behind it")
        func endings() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("x:exclusive")
            let output = try fixture.grantfs("run", "--grant", source + ":rw", "--", "ls", "/grants").orThrow()
            #expect(output.lines == ["x:exclusive"])
            let read = try fixture.grantfs("run", "--grant", source + ":ro:exclusive", "--", "touch", "/grants/x:exclusive/new")
            #expect(read.status != 0 && read.errors.contains("Read-only"), "\(read)")
        }
    }
}
