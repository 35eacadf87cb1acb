import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Where filesystems of this kind broke before.
    @Suite struct Hazards {
        private static let needsUser: Comment = "needs root, and a plain user to act as"

        @Test(
            "links out of a grant lead nowhere that the caller may not go: the daemon follows none",
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
            "a directory swapped for a link between look-up and use never leads out",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser), arguments: ["shared", "none"])
        func swapped(cache: String) throws {
            let user = Machine.plainUser!
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let outside = try fixture.directory("outside")
            try Command.shell(
                """
                echo outside > "$2/file"; chmod 600 "$2/file"; chmod 700 "$2"
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

        @Test("FIFOs, sockets and devices in a grant hang nothing and are opened by the caller alone")
        func specialFiles() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Probe.prepare(source)
            try Command.shell("mkfifo \"$1/fifo\"; if [ $(id -u) = 0 ]; then mknod \"$1/null\" c 1 3; fi", source).orThrow()
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a"
            try Command.shell(
                "ls -lR \"$1\" > /dev/null; stat \"$1/fifo\" \"$1/socket\" > /dev/null; getfacl \"$1/fifo\" 2> /dev/null || true", mount,
                within: 5
            )
            .orThrow()
            #expect(try Command.shell("(echo through > \"$1/fifo\") & cat \"$1/fifo\"; wait", mount, within: 5).text == "through\n")
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

        @Test("rename, exchange and link between a read-only and a read-write grant change nothing")
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

        @Test("two filesystems with the same inode numbers stay apart", .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func inodeNumbers() throws {
            let fixture = try MountFixture()
            for name in ["one", "two"] {
                let source = try fixture.source(name)
                try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: source)
                try Command.shell(
                    "cd \"$1\"; echo \"$2\" > first; echo \"$2\" > second; ln second linked; mkdir d; echo \"$2\" > d/third", source, name
                ).orThrow()
                try fixture.grant(source)
            }
            let mount = try fixture.mount()
            let numbers = try Command.shell("find \"$1\" -mindepth 1 -printf '%D:%i %n %f\\n'", mount).lines
            let shown = numbers.filter { !$0.hasSuffix("linked") }.map { $0.split(separator: " ")[0] }
            #expect(Set(shown).count == shown.count, "\(numbers)")
            let archive = try Command.shell(
                "cd \"$2\"; tar -C \"$1\" -cf all.tar one two; tar -tvf all.tar | grep -c 'link to'; cp -a \"$1\" copied; cat copied/two/first copied/one/d/third; stat -c %h copied/*/second",
                mount, fixture.base + "/native")
            #expect(archive.lines == ["2", "two", "one", "2", "2"])
        }

        @Test(
            "a handle taken before a revocation opens nothing after it", .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))
        )
        func fileHandles() throws {
            for cold in [false, true] {
                let mount = try ProbedMount(Situation(cold: cold))
                let probe = try mount.probe(mount.held)
                try mount.fixture.revoke("held")
                try mount.fixture.restore("held")
                // Even with the scope open again, the handle belongs to the one that was closed.
                let result = try probe.attempt().first { $0.kind == "open_by_handle_at" }
                #expect(result.map { $0.errno != "OK" } ?? false)
            }
        }

        @Test("an inode that is used again is not taken for the old file")
        func reusedInodes() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a"
            let output = try Command.shell(
                """
                cd "$1"; echo held > first; exec 9< first; rm first
                for i in $(seq 300); do echo "text $i" > f; [ "$(cat f)" = "text $i" ] || echo "wrong at $i"; rm f; done
                for i in $(seq 50); do echo "host $i" > "$2/g"; [ "$(cat g)" = "host $i" ] || echo "wrong at host $i"; rm g; done
                cat <&9
                """, mount, source)
            #expect(output.text == "held\n", "\(output)")
        }

        @Test("listings of 50,000 entries: each once, every position leads back, rm -rf removes all")
        func largeDirectories() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Command.shell("mkdir \"$1/d\"; cd \"$1/d\"; seq -f 'a-rather-ordinary-name-%.0f' 50000 | xargs touch", source).orThrow()
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a"
            let listed = try Command.shell("ls -U \"$1/d\" | sort | uniq -c | awk '$1 != 1 { wrong++ } END { print NR, wrong + 0 }'", mount)
            #expect(listed.trimmed == "50000 0")
            let seeking = try Probe.role(["seekdir", mount + "/d"])
            #expect(seeking.line() == "{\"entries\":50002,\"wrong\":0}")
            let changing = try Command.shell(
                """
                (for i in $(seq 200); do : > "$1/d/new-$i"; rm "$1/d/new-$i"; done) &
                for i in 1 2 3; do ls -U "$1/d" | grep -v '^new-' | sort | uniq -c | awk '$1 != 1 { wrong++ } END { print NR, wrong + 0 }'; done; wait
                """, mount)
            #expect(changing.lines == Array(repeating: "50000 0", count: 3))
            try Command.run(["rm", "-rf", mount + "/d"], within: 120).orThrow()
            #expect(try Command.run(["ls", "-A", source]).text.isEmpty)
        }

        @Test("a mount inside what it grants is refused, when granted and when mounted")
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
            #expect(try Command.run(["find", mount], within: 10).status == 0)
        }

        @Test(
            "the control socket is closed to others: directories 0700, and a stranger's connection refused by its credentials",
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

        @Test("a tree far larger than the daemon's limit of descriptors is walked, read and revoked")
        func fewDescriptors() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Command.shell(
                "cd \"$1\"; for d in $(seq 40); do mkdir d$d; seq -f \"d$d/f%.0f\" 100 | xargs touch; done; echo x > d1/f1", source
            ).orThrow()
            try fixture.grant(source)
            let mountpoint = try fixture.directory("mount")
            try Command.run(
                ["prlimit", "--nofile=256:256", Programs.grantfs, "mount", "default", mountpoint], environment: fixture.environment
            ).orThrow()
            let walked = try Command.shell(
                "cd \"$1/a\"; find . -type f | wc -l; find . -type f -print0 | xargs -0 cat; ls -lR > /dev/null", mountpoint)
            #expect(walked.status == 0 && walked.lines == ["4000", "x"], "\(walked)")
            let revoked = try fixture.revoke("a")
            #expect(revoked[0].isConfirmed)
            try expectCall("stat", mountpoint + "/a/d1/f1", gives: "EACCES")
        }

        @Test("another filesystem below a grant is not entered", .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
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
            "a volume that goes away takes its grant with it, and brings it back",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func absentVolume() throws {
            let fixture = try MountFixture()
            let volume = try fixture.directory("volume")
            let image = fixture.base + "/image"
            try Command.shell("truncate -s 16M \"$1\"; mkfs.ext4 -q \"$1\"", image).orThrow()
            guard try Command.run(["mount", "-o", "loop", image, volume]).status == 0 else { return }
            try Command.shell("mkdir \"$1/d\"; echo text > \"$1/d/x\"", volume).orThrow()
            try fixture.grant(volume + "/d")
            try Command.run(["umount", volume]).orThrow()
            let mount = try fixture.mount()
            try expectCall("stat", mount + "/d", gives: "ENOENT")
            #expect(try Command.run(["ls", mount]).text.isEmpty)
            #expect(try fixture.list().map(\.state) == ["unavailable"])
            try fixture.mountOther(["mount", "-o", "loop", image], at: volume)
            try fixture.wait(until: "the grant is back by itself", within: 8) {
                try Command.run(["cat", mount + "/d/x"]).text == "text\n"
            }
        }

        @Test(
            "a source that is full says so at the call that native gives it at",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func fullSource() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=1M", "none"], at: source)
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a"
            let filled = try Command.run(["dd", "if=/dev/zero", "of=\(mount)/file", "bs=64k", "count=32"])
            #expect(filled.status != 0 && filled.errors.contains("No space left on device"), "\(filled)")
            try Command.run(["rm", mount + "/file"]).orThrow()
            try Command.shell("echo again > \"$1/file\"", mount).orThrow()
        }

        @Test("commands at the same time, while daemons start, lose nothing and leave nothing open")
        func concurrentCommands() throws {
            let fixture = try MountFixture()
            let names = (0..<6).map { "g\($0)" }
            for name in names {
                try Data("inside".utf8).write(to: URL(fileURLWithPath: try fixture.source(name) + "/x"))
                try fixture.grant(fixture.base + "/source/" + name)
            }
            let first = try fixture.mount(at: "one")
            // Half of the grants are revoked by one command each, all at once, while a second mount of the view starts.
            let revoking = try names.prefix(3).map {
                try Child([Programs.grantfs, "revoke", $0], environment: fixture.environment, separateErrors: true)
            }
            let second = try fixture.mount(at: "two")
            for command in revoking { #expect(command.wait(within: 20) == 0) }
            for mountpoint in [first, second] {
                for name in names.prefix(3) { try expectCall("stat", "\(mountpoint)/\(name)/x", gives: "EACCES") }
                for name in names.dropFirst(3) { try expectCall("stat", "\(mountpoint)/\(name)/x", gives: "OK") }
            }
            let granting = try (0..<4).map { number in
                let directory = try fixture.source("new\(number)")
                return try Child([Programs.grantfs, "grant", directory], environment: fixture.environment, separateErrors: true)
            }
            for command in granting { #expect(command.wait(within: 20) == 0) }
            #expect(try Command.run(["ls", first]).lines.count == 7)
            #expect(try fixture.list().count == 7)
        }

        @Test(
            "callers get what they get natively: groups, setgid and sticky directories, set-id bits, modes",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser))
        func callers() throws {
            let user = Machine.plainUser!
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let native = try fixture.directory("native")
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other") + "/a"
            let prepare = """
                cd "$1"; chmod 777 .; mkdir setgid sticky closed; chgrp 65534 setgid; chmod 2777 setgid; chmod 1777 sticky; chmod 700 closed
                echo mine > sticky/root; chmod 666 sticky/root; echo x > program; chmod 6777 program; echo s > closed/secret; echo h > hidden; chmod 600 hidden
                """
            let act = """
                cd "$1"; umask 027; exec 2>&1
                echo a > new; mkdir dir; echo b > setgid/file; mkdir setgid/dir; mkfifo setgid/fifo; ln -s x setgid/link
                rm -f sticky/root || true; mv sticky/root sticky/mine || true; echo more >> program; cat hidden || true; cat closed/secret || true
                chown 0 new || true; chmod 4755 program || true; touch closed/x || true; ls closed || true
                """
            let look = "cd \"$1\"; find . -printf '%P %y %m %U %G\\n' | LC_ALL=C sort"
            var seen: [String] = []
            for place in [mount, native] {
                try Command.shell(prepare, place).orThrow()
                if place == mount {
                    try Command.shell("ls -lR \"$1\" > /dev/null; cat \"$1/hidden\" \"$1/closed/secret\" > /dev/null", place).orThrow()
                }
                let output = try Command.shell(act, place, as: user)
                seen.append(output.text + (try Command.shell(look, place).text))
            }
            #expect(seen[0] == seen[1])
        }
    }
}
