import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Renames that could lead to a hidden file by another name, through the mount and on the host.
    @Suite struct RuleRenameTests {
        @Test("A directory is not renamed if that would show or hide a name in it", arguments: RuledMount.modes)
        func directories(_ mode: String) throws {
            let files = ["a/secret", "a/b/deep", "b/c/free", "x/secret", "y/z/free"]
            let mounted = try RuledMount(mode, rules: ["--hide", "/a/secret", "--hide", "/a/b/deep", "--hide", "/n/free"], files: files)
            for (from, to) in [("a", "w"), ("a", "b/a"), ("x", "a2/x"), ("a/b", "v"), ("b/c", "n"), ("y/z", "n")] {
                if to == "a2/x" { #expect(try mounted.call("mkdir", "a2") == "OK") }
                let isFree = from == "x"
                #expect(try mounted.call("rename", from, to) == (isFree ? "OK" : "EACCES"), "rename \(from) \(to)")
            }
            #expect(try mounted.call("exchange", "a", "y") == "EACCES")
            #expect(try mounted.call("exchange", "y", "a") == "EACCES")
            #expect(try mounted.call("rename", "y", "q") == "OK")
            #expect(mounted.text("q/z/free") == "y/z/free")
            #expect(mounted.text("a/secret") == nil && mounted.hostText("a/secret") == "a/secret")
        }

        @Test("A symbolic link does not take the place of a directory that a pattern names", arguments: RuledMount.modes)
        func symbolicLinks(_ mode: String) throws {
            let rules = ["--protect", "**/.git/hooks", "--hide", "/a/secret"]
            let mounted = try RuledMount(mode, rules: rules, files: [".git/HEAD", "other/hooks/pre", "b/secret"])
            #expect(try mounted.call("rename", ".git", "moved") == "OK")
            #expect(try mounted.call("symlink", "=other", ".git") == "EROFS")
            #expect(try mounted.call("symlink", "=b", "a") == "EACCES")
            #expect(try mounted.call("symlink", "=other", "link") == "OK")
            for call in ["rename", "noreplace", "link"] { #expect(try mounted.call(call, "link", ".git") == "EROFS", "\(call)") }
            #expect(try mounted.call("rename", "link", "a") == "EACCES")
            #expect(try mounted.call("create", ".git") == "OK", "a file leads nowhere")
        }

        @Test("What is hidden and protected stays protected when it is shown again", arguments: RuledMount.modes)
        func hiddenAndProtected(_ mode: String) throws {
            let files = [".git/hooks/pre", "x/.git/info/kept/file", "y/.git/info/free", "z/secret/deep"]
            let protected = ["--protect", ".git/hooks/pre", "--protect", "**/info/kept"]
            let mounted = try RuledMount(mode, rules: ["--hide", "hooks", "--hide", "info", "--hide", "secret"] + protected, files: files)
            #expect(try mounted.call("rename", ".git", "moved") == "EACCES")
            #expect(try mounted.call("exchange", ".git", "y") == "EACCES")
            #expect(try mounted.call("rename", "x", "moved") == "EACCES")
            #expect(try mounted.call("rmdir", "x/.git") == "ENOTEMPTY", "nothing tells what is hidden")
            for name in ["y", "z"] { #expect(try mounted.call("rename", name, name + "2") == "OK", "\(name)") }
            try mounted.set("--hide", "secret")
            #expect(try mounted.call("write", ".git/hooks/pre") == "EROFS")
            #expect(try mounted.call("rename", ".git", "moved") == "EROFS")
        }

        @Test("A rename does not lead another grant to a place with other rules", arguments: RuledMount.modes)
        func otherGrants(_ mode: String) throws {
            let fixture = try MountFixture()
            let inner = try fixture.source("a/sub/deep")
            let mounted = try RuledMount(fixture, mode, rules: ["--protect", ".git/hooks"], files: ["sub/deep/file", "free/file"])
            #expect(try mounted.call("rename", "free", ".git") == "OK")
            #expect(try mounted.call("rename", ".git", "free") == "OK")
            try fixture.grant(inner)
            for (from, to) in [("sub/deep", ".git"), ("sub", ".git")] {
                #expect(try mounted.call("rename", from, to) == "EACCES", "\(from)")
            }
            #expect(try mounted.call("mkdir", ".git") == "OK")
            for (one, other) in [("sub", ".git"), (".git", "sub/deep")] {
                #expect(try mounted.call("exchange", one, other) == "EACCES", "\(one)")
            }
            #expect(try mounted.call("rename", "sub", "sub2") == "OK", "the rules say the same there")
            #expect(try String(contentsOfFile: mounted.mountpoint + "/deep/file", encoding: .utf8) == "sub/deep/file")
            try fixture.revoke("deep")
            #expect(try mounted.call("rmdir", ".git") == "OK")
            #expect(try mounted.call("rename", "sub2/deep", ".git") == "OK", "that grant has ended")
        }

        @Test(
            "A rename does not lead a grant on a filesystem below to a place with other rules",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func otherFilesystem() throws {
            let fixture = try MountFixture()
            let below = try fixture.source("a/sub/m")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "mode=0700", "none"], at: below)
            mkdir(below + "/inner", 0o700)
            let mounted = try RuledMount(fixture, rules: ["--protect", ".git/m/inner/x"], files: [])
            #expect(try mounted.call("rename", "sub", ".git") == "OK")
            #expect(try mounted.call("rename", ".git", "sub") == "OK")
            try fixture.grant(below + "/inner")
            #expect(try mounted.call("rename", "sub", ".git") == "EACCES")
            #expect(try mounted.call("rename", "sub", "other") == "OK")
        }

        @Test("A renamed directory is judged by its new path", arguments: RuledMount.modes)
        func state(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: ["--hide", "/in/secret", "--protect", "/in/kept"], files: ["out/free"])
            #expect(try mounted.call("create", "out/plain") == "OK")
            #expect(try mounted.call("rename", "out", "in") == "OK")
            #expect(try mounted.call("create", "in/secret") == "EACCES")
            #expect(try mounted.call("create", "in/kept") == "EROFS")
            #expect(try mounted.call("rename", "in", "out") == "OK")
            #expect(try mounted.call("create", "out/secret") == "OK")
            #expect(try mounted.call("rename", "out", "in") == "EACCES")
        }

        @Test("A file that the host renames to a hidden name is refused, open or not", arguments: RuledMount.modes)
        func toHidden(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: ["--hide", "secret"], files: ["file", "other"])
            let held = try HeldPath(mounted.place + "/file")
            let holder = try Child([Programs.attacker, "outlive", mounted.place + "/file", "map", "fd"])
            try holder.expect("ready")
            #expect(held.read() == 0)
            try #require(rename(mounted.source + "/file", mounted.source + "/secret") == 0)
            try mounted.fixture.wait(until: "the open file is refused") { try Succession.said(holder).hasPrefix("map SIGBUS fd EACCES") }
            #expect(held.read() == EACCES)
            try mounted.fixture.wait(until: "the former name is gone") { try mounted.call("stat", "file") == "ENOENT" }
            #expect(mounted.text("other") == "other")
            try #require(rename(mounted.source + "/secret", mounted.source + "/file") == 0)
            try mounted.fixture.wait(until: "the file shows again") { try mounted.call("open", "file") == "OK" }
            #expect(held.read() == EACCES, "the earlier handle stays refused")
        }

        @Test("A directory that the host renames takes its files to other rules", arguments: RuledMount.modes)
        func hostDirectory(_ mode: String) throws {
            let rules = ["--hide", "/in/secret", "--protect", "/in/kept"]
            let mounted = try RuledMount(mode, rules: rules, files: ["out/secret", "out/kept", "out/plain"])
            let (secret, plain) = (try HeldPath(mounted.place + "/out/secret"), try HeldPath(mounted.place + "/out/plain"))
            #expect(mounted.text("out/kept") == "out/kept")
            try #require(rename(mounted.source + "/out", mounted.source + "/in") == 0)
            try mounted.fixture.wait(until: "the file is refused") { secret.read() == EACCES }
            try mounted.fixture.wait(until: "the new name shows") { try mounted.call("stat", "in/plain") == "OK" }
            #expect(plain.read() == 0)
            try mounted.fixture.wait(until: "the name is looked up") { try mounted.call("stat", "in/secret") == "ENOENT" }
            #expect(try mounted.call("write", "in/kept") == "EROFS")
            try mounted.fixture.wait(until: "the listing has no hidden name") { try mounted.names(in: "in") == ["kept", "plain"] }
            try #require(rename(mounted.source + "/in", mounted.source + "/out") == 0)
            try mounted.fixture.wait(until: "it shows again") { mounted.text("out/secret") == "out/secret" }
            try mounted.fixture.wait(until: "it can be changed again") { try mounted.call("write", "out/kept") == "OK" }
        }

        @Test("A file with a hidden and a visible name is reached by the visible one alone", arguments: RuledMount.modes)
        func links(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: ["--hide", "secret"], files: ["secret"])
            try #require(link(mounted.source + "/secret", mounted.source + "/pub") == 0)
            #expect(mounted.text("pub") == "secret" && mounted.text("secret") == nil)
            let held = try HeldPath(mounted.place + "/pub")
            try mounted.set("--hide", "secret", "--hide", "other")
            #expect(held.read() == 0 && mounted.text("pub") == "secret")
        }

        @Test("A file is protected by each of its known names", arguments: RuledMount.modes)
        func protectedLinks(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: ["--protect", "kept"], files: ["kept"])
            try #require(link(mounted.source + "/kept", mounted.source + "/alias") == 0)
            #expect(try mounted.call("stat", "kept") == "OK")
            let keeper = try HeldPath(mounted.place + "/kept")
            #expect(try mounted.call("write", "alias") == "EROFS")
            #expect(try mounted.call("unlink", "alias") == "EROFS")
            #expect(try mounted.call("rename", "alias", "other") == "EROFS")
            #expect(keeper.read() == 0 && mounted.hostText("kept") == "kept")
        }
    }
}
