import Foundation
import Glibc
import TestSupport
import Testing

// What a program in the sandbox must not see or change, and command lines that start nothing.
extension MountTests.BwrapTests {
    @Test("A bind in a granted directory does not follow a link that takes its place", .enabled(if: geteuid() == 0, "needs root"))
    func race() throws {
        let stops = try StopPoints(fixture)
        stops.arm("binding")
        let program = try Child(
            [Programs.grantfsWithFaults, "bwrap"] + agentsWords + ["--", "cat", "\(work)/.git/file"], environment: fixture.environment,
            separateErrors: true)
        try stops.awaitStop("binding")
        try Command.shell("mv '\(work)/.git' '\(work)/old'; ln -s '\(other)' '\(work)/.git'").orThrow()
        stops.goOn("binding")
        let output = try #require(program.collected(within: 30))
        #expect(output.output.isEmpty && output.errors.contains("can't find source path"), "\(output)")
        #expect(program.wait() != 0)
        try requireNothingLeft()
    }

    @Test("What the command line protects or hides in a directory stays so")
    func covers() throws {
        let script = """
            echo ready
            while read -r line; do
                cat "$1/secret/key" "$1/denied" "$1/file" 2>/dev/null | tr '\\n' ' '
                if echo more 2>/dev/null >> "$1/.git/config"; then echo writes; else echo reads; fi
            done
            """
        let program = try Child([link] + agentsWords + ["--", "bash", "-c", script, "bash", work], environment: fixture.environment)
        try program.expect("ready")
        program.send("look")
        try program.expect("content reads")
        // The kernel forgets all names, and with them each mount in the mount.
        try fixture.grantfs("set", "work", "--hide", "file").orThrow()
        program.send("look")
        try program.expect("reads")
        #expect(try fixture.grantfs("list", "work", "--json").text.contains("/secret"))
        for words in [["--no-rules"], ["--hide", ""], ["--hide", "!/secret"]] {
            let output = try fixture.grantfs(["set", "work"] + words)
            #expect(output.status == 2, "\(words): \(output)")
        }
        try fixture.grantfs("set", "work", "--read-only").orThrow()
        try fixture.grantfs("set", "work", "--access", "rw").orThrow()
        program.send("look")
        try program.expect("reads")
        program.closeInput()
        #expect(program.wait() == 0)
    }

    @Test("A mount that hides contents of a granted directory by others is refused")
    func covering() throws {
        for words in [
            ["--ro-bind", other + "/file", work + "/file"], ["--bind", other, work + "/secret"], ["--bind", other, work + "/out"],
            ["--tmpfs", work + "/secret", "--bind", other, work + "/secret/other"], ["--tmpfs", work + "/out"],
        ] {
            let output = try bwrap(["--ro-bind", "/", "/", "--bind", work, work] + words + ["--", "true"])
            #expect(output.status == 1 && output.errors.contains("cannot be covered"), "\(output)")
        }
        try Command.shell("mkdir '\(work)/empty'").orThrow()
        let output = try bwrap([
            "--ro-bind", "/", "/", "--bind", work, work, "--bind", other, work + "/empty", "--", "ls", work + "/empty",
        ])
        #expect(output.lines == ["file"], "\(output)")
        // One without contents needs no rule: it is a place to write to, or one where nothing can be made.
        let script = "cd '\(work)'; for at in empty missing none; do echo x 2>/dev/null > $at/x; cat $at/x 2>/dev/null || echo no; done"
        let scratch = try bwrap(
            ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", work, work, "--tmpfs", work + "/empty", "--tmpfs", work + "/missing"]
                + ["--perms", "555", "--tmpfs", work + "/none", "--remount-ro", work + "/none", "--", "sh", "-c", script])
        #expect(scratch.lines == ["x", "x", "no"], "\(scratch)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: work + "/empty").isEmpty)
        let program = try Child(
            [link] + system + ["--bind", work, work, "--bind", work + "/.git", work + "/.git", "--remount-ro", work + "/.git"]
                + ["--", "sh", "-c", "echo ready; read x"], environment: fixture.environment)
        try program.expect("ready")
        #expect(try fixture.grantfs("list", "work", "--json").text.contains("\"protect\":[\"/.git\"]"))
        program.kill()
        try requireNothingLeft()
        // The last of several options at a place counts.
        for (words, rule) in [
            (["--bind", work + "/.git", work + "/.git", "--ro-bind", work + "/.git", work + "/.git"], "\"protect\":[\"/.git\"]"),
            (["--bind", work + "/secret", work + "/secret", "--tmpfs", work + "/secret"], "\"hide\":[\"/secret\"]"),
            (
                ["--tmpfs", "/mnt", "--bind", work, "/mnt/q", "--symlink", "q", "/mnt/l", "--tmpfs", "/mnt/l/secret"],
                "\"hide\":[\"/secret\"]"
            ),
        ] {
            let program = try Child(
                [link] + system + ["--bind", work, work] + words + ["--", "sh", "-c", "echo ready; read x"],
                environment: fixture.environment)
            try program.expect("ready")
            #expect(try fixture.grantfs("list", "work", "--json").text.contains(rule), "\(words)")
            program.kill()
            try requireNothingLeft()
        }
        #expect(
            try bwrap(system + ["--bind", work, work, "--proc", work + "/secret", "--", "true"]).errors.contains("cannot be covered"))
        // A number is not a descriptor unless the option takes one.
        let bound = try Command.run(
            ["sh", "-c", "ulimit -n 1024; exec \"$@\"", "sh", link] + system
                + ["--bind", work, work, "--setenv", "PORT", "3128", "--size", "65536", "--tmpfs", "/mnt", "--", "printenv", "PORT"],
            environment: fixture.environment, within: 60)
        #expect(bound.lines == ["3128"], "\(bound)")
        // Other spellings of a place, and a link that leads to it.
        #expect(symlink("work", fixture.base + "/source/alias") == 0)
        for place in [String(work.dropFirst()), "/" + work + "/./", fixture.base + "/source/alias"] {
            let hidden = try bwrap(
                system + ["--ro-bind", fixture.base, fixture.base, "--bind", work, work, "--tmpfs", place + "/secret", "--"]
                    + ["cat", "/proc/self/mountinfo", "\(work)/file", "\(work)/secret/key"])
            #expect(hidden.lines.last == "content" && !hidden.text.contains("work/secret"), "\(place): \(hidden)")
        }
        // A root of its own.
        try Command.shell(
            "cd '\(fixture.base)/source'; mkdir -p root/usr root/etc root/tmp root/proc root/dev; echo x > root/etc/hostname"
        ).orThrow()
        let root = fixture.base + "/source/root"
        let own = try bwrap(
            ["--bind", root, "/", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
                + ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
                + ["--ro-bind", "/etc/hostname", "/etc/hostname", "--", "sh", "-c", "echo x > /tmp/x; cat /tmp/x; stat -f -c %T /"])
        #expect(own.lines.first == "x" && own.lines.last?.contains("fuse") == true, "\(own)")
        // A directory for writing in one for reading.
        let inner = try bwrap(
            ["--ro-bind", "/", "/", "--bind", work, work, "--ro-bind", work + "/.git", work + "/.git"]
                + ["--bind", work + "/.git/hooks", work + "/.git/hooks", "--"]
                + ["sh", "-c", "cd '\(work)/.git'; echo x > hooks/new && echo wrote; echo x 2>/dev/null > new || echo refused"])
        #expect(inner.lines == ["wrote", "refused"], "\(inner)")
        try requireNothingLeft()
    }

    @Test("A source that leads to a person's files by way of the system's is a grant")
    func indirect() throws {
        let end = ["--", "stat", "-f", "-c", "%T", "/x"]
        for source in ["/proc/self/cwd/source/work", "/proc/self/root\(work)"] {
            let output = try Command.run(
                ["env", "-C", fixture.base, link] + system + ["--bind", source, "/x"] + end, environment: fixture.environment,
                within: 60
            )
            #expect(output.text.contains("fuse"), "\(source): \(output)")
        }
        // Owner and mode are a program's choice.
        #expect(chmod(fixture.base, 0o1755) == 0)
        let output = try bwrap(system + ["--bind", work, "/x"] + end)
        #expect(output.text.contains("fuse"), "\(output)")
    }

    @Test("A link to the system's files that leads elsewhere by then is not followed", .enabled(if: geteuid() == 0, "needs root"))
    func replacedLink() throws {
        #expect(symlink("/usr/share", work + "/place") == 0)
        let stops = try StopPoints(fixture)
        stops.arm("binding")
        let program = try Child(
            [Programs.grantfsWithFaults, "bwrap"] + system + ["--ro-bind", "\(work)/place", "/mnt", "--", "ls", "/mnt"],
            environment: fixture.environment, separateErrors: true)
        try stops.awaitStop("binding")
        try Command.shell("ln -sfn '\(other)' '\(work)/place'").orThrow()
        stops.goOn("binding")
        let output = try #require(program.collected(within: 30))
        #expect(String(decoding: output.output, as: UTF8.self).contains("doc\n"), "\(output)")
    }

    @Test("A socket whose name becomes a link is not bound", .enabled(if: geteuid() == 0, "needs root"))
    func replacedSocket() throws {
        try Command.run(["python3", "-c", "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", work + "/socket"])
            .orThrow()
        let stops = try StopPoints(fixture)
        stops.arm("binding")
        let program = try Child(
            [Programs.grantfsWithFaults, "bwrap"] + system + ["--bind", work + "/socket", "/place", "--", "cat", "/place"],
            environment: fixture.environment, separateErrors: true)
        try stops.awaitStop("binding")
        try Command.shell("ln -sfn '\(other)/file' '\(work)/socket'").orThrow()
        stops.goOn("binding")
        let output = try #require(program.collected(within: 30))
        #expect(output.output.isEmpty && program.wait() != 0, "\(output)")
    }

    @Test("The store is not shown, and no directory with it is bound for writing", .enabled(if: geteuid() == 0, "needs root"))
    func store() throws {
        _ = try fixture.grant(other, name: "other", view: "standing")
        for words in [
            ["--bind", "/", "/"], ["--dev-bind", "/", "/"], ["--bind-try", "/tmp", "/tmp"], ["--bind", fixture.base, "/mnt"],
            ["--bind", fixture.store, "/mnt"], ["--ro-bind", "\(fixture.store)/run", "/mnt"], ["--ro-bind", fixture.store, "/mnt"],
        ] {
            let output = try bwrap(["--ro-bind", "/", "/", "--bind", work, work] + words + ["--", "true"])
            #expect(output.status == 1 && output.errors.contains("store"), "\(output)")
        }
        let script = "find \"$1\" | wc -l; ls -R \"$1\"/run/*; if : 2>/dev/null > \"$1/x\"; then echo writable; fi"
        for place in ["", "/mnt"] {
            let words =
                ["--ro-bind", "/", "/", "--proc", "/proc"] + (place.isEmpty ? [] : ["--tmpfs", "/mnt", "--ro-bind", "/", "/mnt"])
            let output = try bwrap(words + ["--bind", work, work, "--", "bash", "-c", script, "bash", place + fixture.store])
            #expect(output.lines.first == (place.isEmpty ? "4" : "1"), "\(output)")
            #expect(!output.text.contains("work") && !output.text.contains("writable"), "\(output)")
        }
        // Without a grant of its own as well, and where another mount shows the store.
        let alias = try fixture.directory("alias")
        try Command.run(["mount", "--bind", fixture.store, alias]).orThrow()
        defer { umount2(alias, Int32(MNT_DETACH)) }
        for bound in [[], ["--bind", work, work]] {
            let output = try bwrap(
                ["--ro-bind", "/", "/"] + bound + ["--", "sh", "-c", "cat '\(fixture.store)/key' '\(alias)/key' | wc -c"])
            #expect(output.lines == ["0"], "\(output)")
        }
        try fixture.wait(until: "only the standing grant is left") { try fixture.list().map(\.view) == ["standing"] }
    }

    @Test("A program in a sandbox can use bubblewrap itself, and gets no grants")
    func nested() throws {
        let inner = [link, "--ro-bind", "/", "/", "--dev", "/dev", "--bind", work, work, "--", "cat", "\(work)/file"]
        let all = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--bind", work, work]
        let output = try bwrap(all + ["--"] + inner)
        #expect(output.lines == ["content"], "\(output)")
        // Nor does grantfs take itself for bubblewrap, or a script that starts it.
        let script = try fixture.directory("scripts") + "/bwrap"
        try Command.writeProgram("#!/bin/sh\nexec \(Programs.grantfs) bwrap --link \"$@\"", to: script)
        let alone = try Command.run(
            [script] + agentsWords + ["--", "true"],
            environment: fixture.environment.merging(["PATH": "\(fixture.base)/scripts:\(fixture.base)/links"]) { $1 })
        #expect(alone.status == 1 && alone.errors.contains("install the package bubblewrap"), "\(alone)")
        let off = try bwrap(["--no-grants"] + agentsWords + ["--", "stat", "-f", "-c", "%T", work])
        #expect(off.status == 0 && !off.text.contains("fuse"), "\(off)")
    }

    @Test("Files that are bound are grants, also where a bubblewrap cannot bind descriptors")
    func files() throws {
        let old = try fixture.directory("old") + "/bwrap"
        try Command.writeProgram(
            "#!/bin/sh\nif [ \"$1\" = --help ]; then \(real) --help | sed '/bind-fd/d'; else exec \(real) \"$@\"; fi", to: old)
        let path = ["PATH": fixture.base + "/old:/usr/bin:/bin"]
        let script =
            "cat '\(work)/file' '\(work)/.git/config'; echo more >> '\(work)/file'; grep -c '/bound/.*fuse.grantfs' /proc/self/mountinfo"
        let words = ["--ro-bind", "/", "/", "--proc", "/proc", "--bind", "\(work)/file", "\(work)/file"]
        for (bound, count) in [([], "1"), (["--ro-bind", "\(work)/.git/config", "\(work)/.git/config"], "2")] {
            let output = try bwrap(words + bound + ["--", "sh", "-c", script])
            #expect(output.lines.first == "content" && output.lines.last == count, "\(output)")
        }
        let output = try Command.run(
            [link] + agentsWords + ["--", "sh", "-c", script], environment: fixture.environment.merging(path) { $1 }, within: 60)
        #expect(output.lines.last == "2", "\(output)")
        #expect(try String(contentsOfFile: work + "/file", encoding: .utf8) == "content\nmore\nmore\nmore\n")
        try requireNothingLeft()
    }

    @Test(
        "A command line that cannot be read grants nothing and starts nothing",
        arguments: [
            (["--frobnicate", "x"], "unknown option"), (["--bind"], "needs 2 values"), (["--args", "97"], "not an open descriptor"),
            (["--args", "x"], "not an open descriptor"), (["--bind", "WORK/none", "/mnt"], "can't find source path"),
            (["--bind-fd", "97", "/mnt"], "not an open descriptor"), (["--overlay-src", "WORK", "--tmp-overlay", "/mnt"], "overlay"),
            (["-x"], "unknown option"),
        ])
    func badInput(_ words: [String], _ message: String) throws {
        let output = try bwrap(
            ["--ro-bind", "/", "/", "--bind", work, work] + words.map { $0.replacingOccurrences(of: "WORK", with: work) }
                + (message.hasPrefix("needs") ? [] : ["--", "sh", "-c", "echo ran"]))
        #expect([1, 2].contains(output.status) && output.text.isEmpty && output.errors.contains(message), "\(output)")
        #expect(!FileManager.default.fileExists(atPath: fixture.store))
    }

    @Test(
        "A user without rights has a sandbox with grants",
        .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
    func plainUser() throws {
        let user = try #require(Machine.plainUser)
        let fixture = try MountFixture(owner: user)
        let work = try fixture.source("work")
        let program = Programs.grantfs(for: user)
        let words = system + ["--unshare-all", "--bind", work, work, "--"]
        let output = try Command.run(
            [program, "bwrap"] + words + ["sh", "-c", "echo x > '\(work)/new'; stat -f -c %T '\(work)'; ls '\(work)'"], as: user,
            environment: fixture.environment, within: 60)
        #expect(output.lines.last == "new" && output.lines.first?.contains("fuse") == true, "\(output)")
    }
}
