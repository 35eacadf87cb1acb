import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Several grants that lead to the same files.
    @Suite struct OtherWayTests {
        private struct Revoked: Decodable {
            struct Way: Decodable, Equatable {
                let view: String
                let name: String
                let relation: String
            }
            let name: String
            let reachable: [Way]
        }

        /// “work” is of a directory, “again” of the same one, “part” of one inside. These are in
        /// one view, and “other” is in another.
        private func granted() throws -> (MountFixture, work: String) {
            let fixture = try MountFixture()
            let work = try fixture.source("work")
            try fixture.grant(work)
            try fixture.grant(work, name: "again")
            try fixture.grant(try fixture.source("work/part"))
            try fixture.grant(work, name: "other", view: "second")
            return (fixture, work)
        }

        @Test("`grant` reports grants of the same, inner or outer directories in its view")
        func granting() throws {
            let fixture = try MountFixture()
            let work = try fixture.source("work")
            #expect(try fixture.grantfs("grant", work).orThrow().errors.isEmpty)
            #expect(try fixture.grantfs("grant", work, "--view", "second").orThrow().errors.isEmpty)
            let same = try fixture.grantfs("grant", work, "--name", "again").orThrow()
            #expect(same.errors.contains("“again” is the same directory as “work” of the view “default”"), "\(same)")
            let inside = try fixture.grantfs("grant", try fixture.source("work/part")).orThrow()
            #expect(inside.errors.contains("“part” lies inside “again” and “work”"), "\(inside)")
            let above = try fixture.grantfs("grant", fixture.base + "/source").orThrow()
            #expect(above.errors.contains("“source” holds “again”, “part” and “work”"), "\(above)")
            #expect(above.errors.contains("grantfs revoke --path \(fixture.base)/source"))
            // A name with the same beginning is not a parent.
            #expect(try fixture.grantfs("grant", try fixture.source("workshop"), "--view", "second").orThrow().errors.isEmpty)
        }

        @Test("`revoke` reports other grants through which the directory is open")
        func revoking() throws {
            let (fixture, work) = try granted()
            let output = try fixture.grantfs("revoke", "work").orThrow()
            for way in [
                "“again” in view “default” (the same directory)", "“part” in view “default” (of \(work)/part, inside it)",
                "“other” in view “second”",
            ] {
                #expect(output.errors.contains(way), "\(output)")
            }
            #expect(output.errors.contains("grantfs revoke --path \(work) ends them all"), "\(output)")
            let last = try fixture.grantfs("revoke", "again", "other", "part").orThrow()
            #expect(!last.errors.contains("reached"), "\(last)")
        }

        @Test("`revoke --json` lists the grants that still reach the directory")
        func document() throws {
            let (fixture, _) = try granted()
            let output = try fixture.grantfs("revoke", "part", "again", "--json").orThrow()
            let documents: [Revoked] = try output.decoded()
            #expect(output.errors.isEmpty, "\(output)")
            let part = try #require(documents.first { $0.name == "part" })
            #expect(
                part.reachable == [
                    .init(view: "default", name: "work", relation: "above"), .init(view: "second", name: "other", relation: "above"),
                ])
        }

        @Test("`revoke --path` accepts a path in a mounted view")
        func pathInView() throws {
            let (fixture, work) = try granted()
            let mountpoint = try fixture.mount()
            for path in [mountpoint + "/work/part", mountpoint + "/again/../work/./part", work + "/part"] {
                let dry: [RevocationNames] = try fixture.grantfs("revoke", "--path", path, "--dry-run", "--json").orThrow().decoded()
                #expect(dry.map(\.name).sorted() == ["again", "other", "part", "work"], "\(path)")
            }
            // A link beside the view leads into it.
            try FileManager.default.createSymbolicLink(atPath: fixture.base + "/link", withDestinationPath: mountpoint + "/work/part")
            let revoked = try fixture.revoke("--path", fixture.base + "/link")
            #expect(revoked.map(\.name).sorted() == ["again", "other", "part", "work"])
            #expect(try fixture.list().isEmpty)
        }

        private struct RevocationNames: Decodable { let name: String }

        @Test("`revoke --path --dry-run` lists grants and withdraws none")
        func dryRun() throws {
            let (fixture, work) = try granted()
            let output = try fixture.grantfs("revoke", "--path", work, "--dry-run").orThrow()
            #expect(output.lines.count == 4 && output.lines.allSatisfy { $0.hasPrefix("would revoke ") }, "\(output)")
            #expect(!output.errors.contains("other grants still reach"), "nothing is left then: \(output)")
            let one = try fixture.grantfs("revoke", "work", "--dry-run").orThrow()
            #expect(one.errors.contains("other grants still reach"), "\(one)")
            #expect(try fixture.list().count == 4)
        }

        /// “inner” is of a directory that a mount inside the directory of “outer” shows. The view is mounted with `submounts`.
        private func grantedByMount() throws -> (MountFixture, inner: String, shown: String, mountpoint: String) {
            let fixture = try MountFixture()
            let (outer, inner) = (try fixture.source("outer"), try fixture.source("inner"))
            try Data("secret".utf8).write(to: URL(fileURLWithPath: inner + "/file"))
            let shown = try fixture.source("outer/below/mount")
            try fixture.mountOther(["mount", "--bind", inner], at: shown)
            try fixture.grant(outer)
            try fixture.grant(inner)
            try fixture.grant(try fixture.source("apart"))
            return (fixture, inner, shown, try fixture.mount(options: "submounts"))
        }

        @Test(
            "`revoke --path` withdraws a grant that shows the directory by an inner mount",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func mountInside() throws {
            let (fixture, inner, _, mountpoint) = try grantedByMount()
            #expect(try Probe.call("open", mountpoint + "/outer/below/mount/file") == "OK")
            let said = try fixture.grantfs("revoke", "inner", "--dry-run").orThrow()
            #expect(said.errors.contains("“outer” in view “default”"), "\(said)")
            #expect(try fixture.revoke("--path", inner).map(\.name).sorted() == ["inner", "outer"])
            #expect(try Probe.call("open", mountpoint + "/outer/below/mount/file") == "EACCES")
            #expect(try fixture.list().map(\.name) == ["apart"])
        }

        @Test(
            "`revoke --path` withdraws grants of a mount inside the path",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func mountInsidePath() throws {
            let (fixture, _, shown, _) = try grantedByMount()
            #expect(try fixture.revoke("--path", shown).map(\.name).sorted() == ["inner", "outer"])
            try fixture.restore("inner", "outer")
            #expect(try fixture.revoke("--path", fixture.base + "/source/outer").map(\.name).sorted() == ["inner", "outer"])
        }

        @Test(
            "`revoke --path` finds a grant that shows the path only in its daemon's namespace",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func mountOfAnotherNamespace() throws {
            let fixture = try MountFixture()
            let (outer, inner) = (try fixture.source("outer"), try fixture.source("inner"))
            let shown = try fixture.source("outer/mount")
            let mountpoint = try fixture.directory("elsewhere")
            try fixture.grant(outer)
            let script = """
                mount --bind '\(inner)' '\(shown)' && \(Programs.grantfs) mount default '\(mountpoint)' -o submounts && echo ready && cat
                umount '\(mountpoint)'
                """
            let other = try Child(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", script], environment: fixture.environment)
            try other.expect("ready", within: 60)
            #expect(try fixture.revoke("--path", inner).map(\.name) == ["outer"])
        }

        @Test(
            "A directory in which a mount shows the store is not granted",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func storeInside() throws {
            let (fixture, _, shown, _) = try grantedByMount()
            try fixture.mountOther(["mount", "--bind", fixture.base], at: try fixture.source("second/mount"))
            let refused = try fixture.grantfs("grant", fixture.base + "/source/second")
            #expect(refused.status == 1 && refused.errors.contains("second/mount inside it shows the store"), "\(refused)")
            #expect(try fixture.grantfs("grant", shown, "--name", "other").status == 0)
        }

        @Test("`revoke --path` does not list grants revoked before")
        func revokedBefore() throws {
            let (fixture, work) = try granted()
            try fixture.grantfs("revoke", "work", "other").orThrow()
            #expect(try fixture.grantfs("revoke", "--path", work, "--dry-run").orThrow().lines.count == 2)
            #expect(try fixture.revoke("--path", work).map(\.name).sorted() == ["again", "part"])
            let nothing = try fixture.grantfs("revoke", "--path", work).orThrow()
            #expect(nothing.text.isEmpty && nothing.errors.contains("revoked before"), "\(nothing)")
            #expect(try fixture.grantfs("revoke", "work").orThrow().text.hasPrefix("was revoked already: work "))
        }

        @Test("`revoke --path` repeats a revocation that a mount had not confirmed")
        func unconfirmedBefore() throws {
            let (fixture, work) = try granted()
            let mountpoint = try fixture.mount()
            let daemon = try fixture.daemon(at: mountpoint)
            try fixture.killDaemon(at: mountpoint, with: SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            #expect(try fixture.grantfs("revoke", "--path", work, "--timeout", "0.2").status == 3)
            let again = try fixture.grantfs("revoke", "--path", work, "--timeout", "0.2")
            #expect(again.status == 3 && again.errors.contains("has not confirmed"), "\(again)")
            kill(daemon, SIGCONT)
            #expect(try fixture.grantfs("revoke", "--path", work).status == 0)
        }

        @Test("`revoke --path` on a terminal asks before it revokes", .enabled(if: Command.exists("script"), "needs script(1)"))
        func question() throws {
            let (fixture, work) = try granted()
            let line = "\(Programs.grantfs) revoke --path '\(work)'"
            let no = try Command.run(["script", "-qec", line, "/dev/null"], environment: fixture.environment, input: "n", within: 60)
            #expect(no.status == 1 && no.text.contains("4 grants would be revoked") && no.text.contains("nothing was revoked"), "\(no)")
            #expect(try fixture.list().count == 4)
            let yes = try Command.run(["script", "-qec", line, "/dev/null"], environment: fixture.environment, input: "y", within: 60)
            #expect(yes.status == 0, "\(yes)")
            #expect(try fixture.list().isEmpty)
        }
    }

    @Suite struct AnInterruptedRevocation {
        @Test(
            "An interrupted withdrawal is reported as recorded and takes effect later",
            arguments: [["revoke", "a"], ["remove", "a"], ["set", "a", "--access", "read-only"]])
        func waiting(_ words: [String]) throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let mountpoint = try fixture.mount()
            let daemon = try fixture.daemon(at: mountpoint)
            try fixture.killDaemon(at: mountpoint, with: SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            let child = try Child(
                [Programs.grantfs] + words + ["--timeout", "600"], environment: fixture.environment, separateErrors: true)
            // The mounts are asked once it is recorded.
            try fixture.wait(until: "it waits for the mount") {
                let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(child.pid)/task")
                return threads.contains { Processes.kernelText("/proc/\(child.pid)/task/\($0)/comm") == "announce\n" }
            }
            kill(child.pid, SIGINT)
            let said = try #require(child.collected(within: 60))
            #expect(child.wait(within: 60) == 3)
            #expect(said.errors.contains("of “a” is recorded"), "\(said.errors)")
            kill(daemon, SIGCONT)
            // Another name each time: where there is one already, a directory to read alone says EEXIST too.
            var count = 0
            try fixture.wait(until: "the mount refuses it") {
                count += 1
                return try ["EACCES", "EROFS"].contains(Probe.call(["create", mountpoint + "/a/new\(count)"]))
            }
        }
    }
}
