import Foundation
import Glibc
import TestSupport
import Testing

extension MountFixture {
    /// A program that claims what it is told line by line.
    func claimant() throws -> Child { try Child([Programs.claimProbe, store, "script"]) }

    /// `grantfs coordinate`, which goes on while the test does.
    func coordinating(_ arguments: String...) throws -> Child {
        try Child([Programs.grantfs, "coordinate"] + arguments, environment: environment, separateErrors: true)
    }
}

extension MountTests {
    @Suite struct AClaim {
        /// A mount of a grant `docs` with the files `a` and `b`.
        private func mounted() throws -> (MountFixture, source: String) {
            let fixture = try MountFixture()
            let source = try fixture.source("docs")
            for name in ["a", "b"] { try Data(name.utf8).write(to: URL(fileURLWithPath: "\(source)/\(name)")) }
            try fixture.grant(source)
            try fixture.mount()
            return (fixture, source)
        }

        private func ask(_ child: Child, _ line: String, _ answer: String) throws {
            child.send(line)
            try child.expect(answer)
        }

        @Test("A claim on a silent daemon times out as the claimant asked")
        func silence() throws {
            let (fixture, source) = try mounted()
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            let output = try fixture.grantfs("coordinate", "--timeout", "3", "write", "docs", "--", "true", within: 60)
            // It is the claimant's time that is over, and not the daemon's.
            #expect(output.status == 1 && output.errors.contains("the time is over"), "\(output)")
            withExtendedLifetime(source) {}
        }

        @Test("`coordinate` gives its command the path and exits with the command's status")
        func command() throws {
            let (fixture, source) = try mounted()
            let output = try fixture.grantfs("coordinate", "read", "docs", "--", "sh", "-c", "echo \"$GRANTFS_PATH\"; exit 7")
            #expect(output.status == 7)
            #expect(output.trimmed == source)
            #expect(try fixture.grantfs("coordinate", "read", "docs", "--", "sh", "-c", "kill -USR1 $$").status == 128 + SIGUSR1)
            #expect(try fixture.grantfs("coordinate", "read", "docs", "--", "no-such-program-anywhere").status == 127)
            #expect(try fixture.grantfs("coordinate", "read", "docs").status == 2)
        }

        @Test("Readers share a claim and a writer excludes them, under any name of the item")
        func sharing() throws {
            let (fixture, source) = try mounted()
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            try ask(one, "read \(source)/a", "granted")
            try ask(other, "read \(fixture.base)/mount/docs/a", "granted")
            #expect(try fixture.grantfs("coordinate", "write", "docs", "--timeout", "0", "--", "true").status == 1)
            // The holder of a part would wait for itself.
            try ask(other, "try \(source)", "error \(EDEADLK)")
            try ask(one, "end", "granted")
            try ask(other, "end", "granted")
            #expect(try fixture.grantfs("coordinate", "write", "docs", "--timeout", "0", "--", "true").status == 0)
        }

        @Test("A claim follows its file through renames and replacements")
        func renaming() throws {
            let (fixture, source) = try mounted()
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            mkdir(source + "/d", 0o755)
            try ask(one, "write \(source)/a", "granted")
            rename(source + "/a", source + "/d/x")
            try ask(other, "try \(source)/d/x", "error \(ETIMEDOUT)")
            try ask(other, "try \(source)/d", "error \(ETIMEDOUT)")
            // Saved by renaming another over it: the claim is on the name as well.
            try Data("new".utf8).write(to: URL(fileURLWithPath: source + "/a"))
            try ask(other, "try \(source)/a", "error \(ETIMEDOUT)")
            try ask(other, "try \(source)/b", "granted")
        }

        @Test("A claim finds its grant after granted directories have changed places")
        func changedPlaces() throws {
            let (fixture, source) = try mounted()
            let more = try fixture.source("more")
            try Data("a".utf8).write(to: URL(fileURLWithPath: more + "/a"))
            try fixture.grant(more)
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            for path in [source, more] {
                try ask(one, "write \(path)/a", "granted")
                try ask(one, "end", "granted")
            }
            rename(source, source + "-away")
            rename(more, source)
            rename(source + "-away", more)
            try ask(one, "write \(source)/a", "granted")
            try ask(other, "try \(source)/a", "error \(ETIMEDOUT)")
            try ask(other, "try \(fixture.base)/mount/more/a", "error \(ETIMEDOUT)")
            try ask(other, "try \(fixture.base)/mount/docs/a", "granted")
            // The claim is of the file at the present path.
            rename(source + "/a", source + "/x")
            try ask(other, "try \(source)/x", "error \(ETIMEDOUT)")
        }

        @Test("A claim is taken after an overlay has copied the granted directory", .enabled(if: Identity.isRoot, "needs root"))
        func copiedUp() throws {
            let fixture = try MountFixture()
            let layers = fixture.base + "/layers"
            mkdir(layers, 0o755)
            try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: layers)
            for name in ["lower", "lower/docs", "upper", "work", "all"] { mkdir("\(layers)/\(name)", 0o755) }
            try Data("a".utf8).write(to: URL(fileURLWithPath: layers + "/lower/docs/a"))
            let options = "lowerdir=\(layers)/lower,upperdir=\(layers)/upper,workdir=\(layers)/work"
            try fixture.mountOther(["mount", "-t", "overlay", "none", "-o", options], at: layers + "/all")
            let source = layers + "/all/docs"
            try fixture.grant(source)
            try fixture.mount()
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            try ask(one, "write \(source)/a", "granted")
            try ask(one, "end", "granted")
            try Data("b".utf8).write(to: URL(fileURLWithPath: source + "/b"))
            try ask(one, "write \(source)/a", "granted")
            try ask(other, "try \(fixture.base)/mount/docs/a", "error \(ETIMEDOUT)")
            one.send("lost")
            try fixture.revoke("docs")
            try one.expect("lost \(EACCES)")
        }

        @Test("A claim of a missing file keeps other claimants from creating it")
        func missing() throws {
            let (fixture, source) = try mounted()
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            try ask(one, "write \(source)/new", "granted")
            try ask(other, "try \(source)/new", "error \(ETIMEDOUT)")
            try ask(other, "write \(source)/no/such", "error \(EIO)")
        }

        @Test("Claims of several items in different orders are granted without a deadlock")
        func batches() throws {
            let (fixture, source) = try mounted()
            let claimants = try (0..<4).map { _ in try fixture.claimant() }
            for round in 0..<10 {
                for (number, child) in claimants.enumerated() {
                    let names = (number + round) % 2 == 0 ? ["a", "b"] : ["b", "a"]
                    child.send("write \(source)/\(names[0]) \(source)/\(names[1])")
                    child.send("end")
                }
                for child in claimants {
                    try child.expect("granted")
                    try child.expect("granted")
                }
            }
        }

        @Test("The claim of a killed process is released immediately")
        func killedClaimants() throws {
            let (fixture, source) = try mounted()
            let (holder, waiting, last) = (try fixture.claimant(), try fixture.claimant(), try fixture.claimant())
            try ask(holder, "read \(source)/a", "granted")
            waiting.send("write \(source)/a")
            try fixture.wait(until: "it waits") {
                try fixture.grantfs("coordinate", "read", "docs", "--timeout", "0", "--", "true").status == 1
            }
            kill(waiting.pid, SIGKILL)
            try ask(last, "read \(source)/a", "granted")
            try ask(last, "end", "granted")
            last.send("write \(source)/a")
            kill(holder.pid, SIGKILL)
            try last.expect("granted")
        }

        @Test("One of two `coordinate` commands that would deadlock fails")
        func deadlock() throws {
            let (fixture, source) = try mounted()
            let script = "touch $1; while [ ! -e $2 ]; do sleep 0.02; done; \"$3\" coordinate write \"$4\" -- true; echo $?"
            func start(_ mine: String, _ theirs: String) throws -> Child {
                try fixture.coordinating(
                    "write", "\(source)/\(mine)", "--", "sh", "-c", script, "sh", "\(fixture.base)/\(mine)", "\(fixture.base)/\(theirs)",
                    Programs.grantfs, "\(source)/\(theirs)")
            }
            let (one, other) = (try start("a", "b"), try start("b", "a"))
            let statuses = [one.line(), other.line()].compactMap { $0 }.sorted()
            #expect(statuses == ["0", "1"])
        }

        @Test("Exactly one claim of a deadlock across several mounts fails", arguments: [2, 3])
        func deadlockAcrossMounts(number: Int) throws {
            let fixture = try MountFixture()
            let items = try (0..<number).map { "view\($0)" }.map { name -> String in
                let source = try fixture.source(name)
                try fixture.grant(source, view: name)
                try fixture.mount(name, at: name)
                return source + "/file"
            }
            // Each takes its own, waits until all have theirs, and asks for the next one's.
            let script = "touch $1; while [ $(ls $2 | wc -l) -lt $3 ]; do sleep 0.02; done; \"$4\" coordinate write \"$5\" -- true; echo $?"
            let begun = try fixture.directory("begun")
            let children = try items.indices.map { place in
                try fixture.coordinating(
                    "write", items[place], "--", "sh", "-c", script, "sh", "\(begun)/\(place)", begun, "\(number)", Programs.grantfs,
                    items[(place + 1) % number])
            }
            #expect(children.compactMap { $0.line() }.sorted() == [String](repeating: "0", count: number - 1) + ["1"])
        }

        @Test("A claim is refused with ENOENT, EACCES or ENOTCONN by its cause")
        func refusals() throws {
            let (fixture, source) = try mounted()
            let claimant = try fixture.claimant()
            try ask(claimant, "read \(fixture.base)/outside", "error \(ENOENT)")
            try ask(claimant, "read \(fixture.base)/mount", "error \(ENOENT)")
            // A link that leads out is not followed.
            symlink(fixture.base + "/outside", source + "/link")
            try ask(claimant, "read \(source)/link/x", "error \(ENOENT)")
            try fixture.revoke("docs")
            try ask(claimant, "read \(source)/a", "error \(EACCES)")
            #expect(try fixture.grantfs("coordinate", "read", "docs", "--", "true").status == 1)
            try fixture.grantfs("unmount", fixture.base + "/mount").orThrow()
            try ask(claimant, "read \(source)/a", "error \(ENOTCONN)")
        }

        @Test("A revocation ends held and waiting claims with EACCES")
        func revocation() throws {
            let (fixture, source) = try mounted()
            let (holder, waiting) = (try fixture.claimant(), try fixture.claimant())
            try ask(holder, "write \(source)/a", "granted")
            waiting.send("write \(source)/a")
            let command = try fixture.coordinating("write", "\(source)/b", "--", "sh", "-c", "echo begun; exec sleep 30")
            try command.expect("begun")
            holder.send("lost")
            try fixture.revoke("docs")
            try holder.expect("lost \(EACCES)")
            try waiting.expect("error \(EACCES)")
            #expect(command.wait() == 1)
            try fixture.restore("docs")
            try ask(waiting, "write \(source)/a", "granted")
        }

        @Test("Claimants are told that their claims ended with the daemon")
        func deadDaemon() throws {
            let (fixture, source) = try mounted()
            let (holder, waiting) = (try fixture.claimant(), try fixture.claimant())
            try ask(holder, "write \(source)/a", "granted")
            waiting.send("write \(source)/a")
            let command = try fixture.coordinating(
                "write", "\(source)/b", "--when-lost", "go-on", "--", "sh", "-c", "echo begun; read line; echo end")
            try command.expect("begun")
            try fixture.killDaemon(at: fixture.base + "/mount")
            holder.send("lost")
            try holder.expect("lost \(ENOTCONN)")
            try waiting.expect("error \(ENOTCONN)")
            command.send("go")
            try command.expect("end")
            #expect(command.wait() == 1)
        }

        @Test("A claim is held in both mounts that lead to its item")
        func severalMounts() throws {
            let (fixture, source) = try mounted()
            try fixture.grant(source, view: "other")
            try fixture.mount("other", at: "second")
            try fixture.grant(try fixture.source("else"), view: "third")
            try fixture.mount("third", at: "third")
            let (one, other) = (try fixture.claimant(), try fixture.claimant())
            try ask(one, "write \(fixture.base)/second/docs/a", "granted")
            try ask(other, "try \(fixture.base)/mount/docs/a", "error \(ETIMEDOUT)")
            one.send("lost")
            try fixture.revoke("docs", "--view", "other")
            try one.expect("lost \(EACCES)")
            try ask(other, "try \(fixture.base)/mount/docs/a", "granted")
        }

        @Test("A claim without a free descriptor does not fail with ENOTCONN")
        func noDescriptors() throws {
            let (fixture, source) = try mounted()
            let words = [Programs.claimProbe, fixture.store, "many", source + "/a", "60"]
            let probe = try Child(["sh", "-c", "ulimit -n 40; exec \"$@\"", "sh"] + words)
            try probe.expect("waiting", within: 60)
            probe.send("go")
            let end = try #require(probe.line(within: 60))
            #expect(end.contains("failed, error numbers") && !end.contains("\(ENOTCONN)"), "\(end)")
        }

        @Test(
            "A thousand waiting claims occupy no threads of the daemon"
        )
        func aThousand() throws {
            let (fixture, source) = try mounted()
            let daemon = try fixture.daemon(at: fixture.base + "/mount")
            func threads() throws -> Int { try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task").count }
            func wait(_ count: Int) throws -> Child {
                let probe = try Child([Programs.claimProbe, fixture.store, "many", source + "/a", "\(count)"])
                try probe.expect("waiting", within: 180)
                return probe
            }
            // Threads that looked for items end by and by.
            func settled() throws -> Int {
                var least = Int.max
                for _ in 0..<20 {
                    least = min(least, try threads())
                    pause(milliseconds: 50)
                }
                return least
            }
            let few = try wait(20)
            let before = try settled()
            few.send("go")
            try few.expect("20 done, 1 at once, 0 failed", within: 180)
            let many = try wait(1000)
            // As many threads as for twenty, on any machine and under any sanitizer.
            try fixture.wait(until: "those who wait have no thread", within: 60) { try threads() <= before + 10 }
            #expect(try fixture.status().mounts.count == 1)
            many.send("go")
            try many.expect("1000 done, 1 at once, 0 failed", within: 180)
        }
    }
}
