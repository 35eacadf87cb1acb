import Foundation
import TestSupport
import Testing

/// What sources and callers of many kinds bring: numbers, sizes, limits, owners.
extension MountTests.Hazards {
    @Test("Two filesystems with the same inode numbers stay apart", .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
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
        "A new listing does not enter a file mounted over a known one",
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func mountedOverKnown() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try Command.shell("cd \"$1\"; echo text > covering; echo under > covered; seq 50 | xargs touch", source).orThrow()
        try fixture.grant(source)
        let mount = try fixture.mount() + "/a"
        try Command.run(["ls", "-l", mount]).orThrow()
        try fixture.mountOther(["mount", "--bind", source + "/covering"], at: source + "/covered")
        // Longer than names are kept, and the directory is another, so that the listing comes from the source and not from the kernel.
        pause(milliseconds: 1200)
        try Command.run(["touch", source + "/new"]).orThrow()
        let seen = try Command.shell("ls -l \"$1\" 2>&1 | wc -l; cat \"$1/covered\" 2>&1 || true; cat \"$1/covering\"", mount).lines
        #expect(seen.count == 3 && seen[1].contains("Permission denied") && seen[2] == "text", "\(seen)")
    }

    @Test("A reused inode is not taken for the old file")
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

    @Test("Listings of 50,000 entries show each entry once and can seek")
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
        try Command.run(["rm", "-rf", mount + "/d"], within: 600).orThrow()
        #expect(try Command.run(["ls", "-A", source]).text.isEmpty)
    }

    @Test(
        "A grant is unavailable while its volume is absent",
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func absentVolume() throws {
        let fixture = try MountFixture()
        let volume = try fixture.directory("volume")
        let image = fixture.base + "/image"
        try Command.shell("truncate -s 16M \"$1\"; mkfs.ext4 -q \"$1\"", image).orThrow()
        guard try Command.run(["mount", "-o", "loop", image, volume]).status == 0 else { return }
        try Command.shell("mkdir \"$1/d\"; echo text > \"$1/d/x\"", volume).orThrow()
        try fixture.grant(volume + "/d")
        // A process that reads all mounts keeps it busy for a moment.
        try fixture.wait(until: "the volume is unmounted") { try Command.run(["umount", volume]).status == 0 }
        let mount = try fixture.mount()
        try expectCall("stat", mount + "/d", gives: "ENOENT")
        #expect(try Command.run(["ls", mount]).text.isEmpty)
        #expect(try fixture.list().map(\.state) == ["unavailable"])
        try fixture.mountOther(["mount", "-o", "loop", image], at: volume)
        try fixture.wait(until: "the grant is back by itself") {
            try Command.run(["cat", mount + "/d/x"]).text == "text\n"
        }
    }

    @Test(
        "A full source gives ENOSPC at the native call",
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

    @Test("Concurrent commands during mounts lose no changes")
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
        for command in revoking { #expect(command.wait() == 0) }
        for mountpoint in [first, second] {
            for name in names.prefix(3) { try expectCall("stat", "\(mountpoint)/\(name)/x", gives: "EACCES") }
            for name in names.dropFirst(3) { try expectCall("stat", "\(mountpoint)/\(name)/x", gives: "OK") }
        }
        let granting = try (0..<4).map { number in
            let directory = try fixture.source("new\(number)")
            return try Child([Programs.grantfs, "grant", directory], environment: fixture.environment, separateErrors: true)
        }
        for command in granting { #expect(command.wait() == 0) }
        #expect(try Command.run(["ls", first]).lines.count == 7)
        #expect(try fixture.list().count == 7)
    }

    @Test(
        "Each file belongs to its creator when many users create at once",
        .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser))
    func creators() throws {
        let user = Machine.plainUser!
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try fixture.grant(source)
        let mount = try fixture.mount(options: "allow_other") + "/a"
        try Command.shell("chmod 1777 \"$1\"", mount).orThrow()
        // Bursts of slow operations, so that workers which act for one user make the workers that
        // then act for the other.
        let burst = """
            cd "$1"; for turn in $(seq 8); do
              for n in $(seq 12); do
                (for i in 1 2 3; do mkdir "$2.$turn.$n.$i"; dd of="$2.$turn.$n.$i/f" if=/dev/zero bs=4k count=1 conv=fsync 2>/dev/null; done) &
              done; wait
            done
            """
        let other = try Child(["sh", "-c", burst, "sh", mount, "user"], identity: user)
        try Command.shell(burst, mount, "root", within: 300).orThrow()
        #expect(other.wait(within: 300) == 0)
        let wrong = try Command.shell(
            "cd \"$1\"; find . -mindepth 1 \\( -path './user.*' ! -uid \"$2\" -o -path './root.*' ! -uid 0 \\) | head; find . -type f | wc -l",
            source,
            String(user.uid))
        #expect(wrong.trimmed == "576")
    }

    @Test(
        "Callers have their native groups, set-id bits and modes",
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
