import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Where filesystems of this kind broke before.
    @Suite struct Hazards {
        static let needsUser: Comment = "needs root, and a plain user to act as"

        @Test(
            "A link out of a grant leads nowhere that its caller may not go",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser))
        func links() throws {
            let user = Machine.plainUser!
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let secret = try fixture.directory("outside") + "/secret"
            try Data("secret".utf8).write(to: URL(fileURLWithPath: secret))
            chmod(secret, 0o600)
            chmod(fixture.base + "/outside", 0o700)
            try Command.shell(
                """
                cd "$1"; ln -s "$2" absolute; ln -s ../../outside/secret relative; ln -s /etc/shadow shadow; ln -s "$3/outside" directory
                ln -s ../.. up; ln -s /proc/self/root magic; chown -h "$4" *
                """, source, secret, fixture.base, "\(user.uid)"
            ).orThrow()
            chown(source, user.uid, user.gid)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other") + "/a"
            #expect(try Command.run(["readlink", mount + "/absolute", mount + "/relative"]).lines == [secret, "../../outside/secret"])
            for link in ["absolute", "relative", "shadow", "directory/secret", "up/outside/secret", "magic\(secret)"] {
                let read = try Command.run(["cat", "\(mount)/\(link)"], as: user)
                #expect(read.status != 0 && read.text.isEmpty, "\(link): \(read)")
                #expect(try Probe.call("open-for-writing", "\(mount)/\(link)", as: user) != "OK", "\(link)")
                #expect(try Probe.call("truncate", "\(mount)/\(link)", as: user) != "OK", "\(link)")
            }
            #expect(try Probe.call("create", mount + "/directory/new", as: user) != "OK")
            #expect(try Command.run(["cat", secret]).text == "secret")
            #expect(try Command.run(["ls", fixture.base + "/outside"]).lines == ["secret"])
        }

        @Test(
            "A directory swapped for a link between lookup and use never leads out",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser), arguments: ["shared", "none"])
        func swapped(cache: String) throws {
            let user = Machine.plainUser!
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            // Open to all users, below a closed directory: a caller that follows the link by path
            // is refused, but a daemon that followed it would meet no refusal.
            let outside = try fixture.directory("outside/closed/open")
            try Command.shell(
                """
                echo outside > "$2/file"; chmod 777 "$2"; chmod 666 "$2/file"; chmod 700 "$2/.."
                mkdir "$1/d"; echo inside > "$1/d/file"; ln -s "$2" "$1/link"; chown -hR "$3" "$1"
                """, source, outside, "\(user.uid)"
            ).orThrow()
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other,cache=\(cache)") + "/a"
            let swapper = try Probe.role(["swap", source + "/d", source + "/link"])
            try swapper.expect("ready")
            let seen = try Command.shell(
                """
                cd "$1"; for i in $(seq 150); do cat d/file link/file; : > "d/made-$i"; : > "link/made-$i"; ls d link; done 2> /dev/null \
                  | grep -v -e '^made-' -e '^[a-z]*:$' -e '^$' -e '^file$' | sort | uniq -c; true
                """, mount, as: user
            ).text
            swapper.send("stop")
            #expect(!seen.contains("outside"), "\(seen)")
            #expect(try Command.run(["ls", outside]).lines == ["file"])
        }

        @Test("A FIFO, socket or device in a grant blocks only its caller")
        func specialFiles() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Probe.prepare(source)
            try Command.shell("if [ $(id -u) = 0 ]; then mknod \"$1/null\" c 1 3; fi", source).orThrow()
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a"
            try Command.shell(
                "ls -lR \"$1\" > /dev/null; stat \"$1/fifo\" \"$1/socket\" > /dev/null; getfacl \"$1/fifo\" 2> /dev/null || true", mount,
                within: 60
            )
            .orThrow()
            #expect(try Command.shell("(echo through > \"$1/fifo\") & cat \"$1/fifo\"; wait", mount, within: 60).text == "through\n")
            if Identity.isRoot { try expectCall("open", mount + "/null", gives: "EACCES") }
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            let opened = try Command.shell(
                "for f in /proc/$1/fd/*; do t=$(readlink $f) || continue; case $t in \"$2\"*) if [ -p $f ] || [ -S $f ] || [ -c $f ]; then grep -H flags /proc/$1/fdinfo/${f##*/}; fi;; esac; done; true",
                "\(daemon)", source)
            for line in opened.lines {
                let flags = Int(line.split(separator: "\t").last ?? "", radix: 8) ?? 0
                #expect(flags & 0o10000000 != 0, "not O_PATH alone: \(line)")
            }
        }

        @Test("Renames and links between read-only and read-write grants fail")
        func readOnlyExchange() throws {
            let fixture = try MountFixture()
            let (writable, frozen) = (try fixture.source("rw"), try fixture.source("ro"))
            try Data("rw".utf8).write(to: URL(fileURLWithPath: writable + "/x"))
            for name in ["x", "other"] { try Data("ro".utf8).write(to: URL(fileURLWithPath: "\(frozen)/\(name)")) }
            try fixture.grant(writable)
            try fixture.grant(frozen, name: nil, view: nil, "--read-only")
            let mount = try fixture.mount()
            for call in ["rename", "exchange", "noreplace", "link"] {
                for (from, to) in [("ro", "rw"), ("rw", "ro")] {
                    let result = try Probe.call(call, "\(mount)/\(from)/x", "\(mount)/\(to)/\(call == "exchange" ? "x" : "y")")
                    #expect(["EXDEV", "EROFS"].contains(result), "\(call) \(from) → \(to): \(result)")
                }
            }
            try expectCall("exchange", mount + "/ro/x", mount + "/ro/other", gives: "EROFS")
            #expect(try Command.shell("cat \"$1/x\" \"$2/x\"; ls \"$1\" \"$2\" | grep -cx x", frozen, writable).lines == ["rorw2"])
        }

        @Test("A mount inside its own granted directory is refused")
        func recursion() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let inside = try fixture.source("a/deep/inside")
            try fixture.grant(source)
            for mountpoint in [source, inside] {
                let output = try fixture.grantfs("mount", "default", mountpoint)
                #expect(output.status == 1 && output.errors.contains("grantfs: "), "\(output)")
            }
            let mount = try fixture.mount()
            for directory in [fixture.base, mount, mount + "/a", mount + "/a/deep", "/"] {
                let output = try fixture.grantfs("grant", directory, "--name", "loop")
                #expect(output.status == 1 && output.errors.contains("grantfs: "), "\(output)")
            }
            #expect(try Command.run(["find", mount], within: 60).status == 0)
        }

        @Test(
            "The control socket refuses other users",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser))
        func controlSocket() throws {
            let stranger = Machine.plainUser!
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let mount = try fixture.mount()
            let modes = try Command.shell("stat -c '%a %U' \"$1\" \"$1/run\"; stat -c '%a' \"$1\"/grants.sqlite", fixture.store)
            #expect(modes.lines == ["700 root", "700 root", "600"])
            let socket = try Command.shell("ls \"$1\"/run/*.sock", fixture.store).trimmed
            #expect(try Probe.role(["connect", socket], as: stranger).line() == "EACCES")
            // With the doors left open by mistake, the credentials still count.
            try Command.shell("chmod 711 \"$1\" \"$1/run\"; chmod 666 \"$2\"", fixture.store, socket).orThrow()
            #expect(try Probe.role(["connect", socket], as: stranger).line() == "closed")
            try Command.shell("chmod 700 \"$1\" \"$1/run\"", fixture.store).orThrow()
            #expect(try Command.run(["ls", mount]).lines == ["a"])
            for command in [["list"], ["revoke", "a"], ["status"], ["grant", "/usr"]] {
                let output = try fixture.grantfs(command, as: stranger)
                #expect(output.status == 1 && output.text.isEmpty, "\(output)")
            }
        }

        @Test(
            "Another filesystem below a grant is not entered by default",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func submounts() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let below = try fixture.source("a/below")
            try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: below)
            try Data("x".utf8).write(to: URL(fileURLWithPath: below + "/other"))
            try fixture.grant(source)
            let mount = try fixture.mount()
            #expect(try Probe.call("stat", mount + "/a/below/other") != "OK")
            let entered = try fixture.mount(at: "second", options: "submounts")
            try expectCall("stat", entered + "/a/below/other", gives: "OK")
        }

        @Test(
            "A file handle from before a revocation opens no file after it",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))
        )
        func fileHandles() throws {
            for cold in [false, true] {
                let mount = try ProbedMount(Situation(cold: cold))
                let probe = try mount.probe(mount.held)
                try mount.fixture.revoke("held")
                try mount.fixture.restore("held")
                // Even with the scope open again, the handle belongs to the closed scope.
                let result = try probe.attempt().first { $0.kind == "open_by_handle_at" }
                #expect(result.map { $0.errno != "OK" } ?? false)
            }
        }
    }
}
