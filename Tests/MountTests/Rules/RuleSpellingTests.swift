import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Filesystems that find a file by several spellings of its name.
    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct RuleSpellingTests {
        @Test(
            "A rule holds for each spelling on vfat",
            .enabled(if: Machine.knowsVFAT && Command.exists("mkfs.vfat"), "this kernel does not know vfat, or mkfs.vfat is missing"))
        func vfat() throws {
            try expectRules("vfat", mkfs: ["mkfs.vfat"])
        }

        @Test(
            "A rule holds for each spelling in a directory with the flag casefold",
            .enabled(if: Command.exists("chattr") && Machine.foldsNames, "this kernel's ext4 does not fold names"))
        func casefold() throws {
            try expectRules("ext4", mkfs: ["mkfs.ext4", "-q", "-F", "-O", "casefold", "-E", "encoding=utf8"])
        }

        /// A mounted filesystem with a directory that ignores case, which is granted with `rules`.
        private struct Volume {
            let fixture: MountFixture
            let isExt4: Bool
            let directory: String

            init(_ kind: String, mkfs: [String]) throws {
                fixture = try MountFixture()
                isExt4 = kind == "ext4"
                let (image, volume) = (fixture.base + "/image", try fixture.directory("volume"))
                directory = volume + "/d"
                try Command.run(["truncate", "-s", "64M", image]).orThrow()
                try Command.run(mkfs + [image]).orThrow()
                try fixture.mountOther(["mount", "-t", kind, "-o", "loop", image], at: volume)
                mkdir(directory, 0o755)
                if isExt4 { try Command.run(["chattr", "+F", directory]).orThrow() }
            }

            func mount(_ rules: [String], _ files: [String]) throws -> RuledMount {
                try RuledMount(fixture, rules: rules, files: files, in: directory)
            }
        }

        private func expectRules(_ kind: String, mkfs: [String]) throws {
            try expectNames(Volume(kind, mkfs: mkfs))
            try expectDirectories(Volume(kind, mkfs: mkfs))
            try expectNewNames(Volume(kind, mkfs: mkfs))
            try expectFirstLookups(Volume(kind, mkfs: mkfs))
            if kind == "ext4" { try expectNewFlag(Volume(kind, mkfs: mkfs)) }
        }

        private func expectNames(_ volume: Volume) throws {
            let mounted = try volume.mount(["--hide", "secret.txt", "--protect", "kept"], ["secret.txt", "kept", "free"])
            for name in ["secret.txt", "SECRET.TXT", "Secret.txt"] {
                #expect(try mounted.call("open", name) == "ENOENT", "\(name)")
                #expect(try mounted.call("create", name) == "EACCES", "\(name)")
                #expect(try mounted.call("rename", "free", name) == "EACCES", "\(name)")
            }
            for name in ["kept", "KEPT"] {
                #expect(try mounted.call("open", name) == "OK", "\(name)")
                #expect(try mounted.call("write", name) == "EROFS", "\(name)")
                #expect(try mounted.call("unlink", name) == "EROFS", "\(name)")
            }
            #expect(try mounted.call("write", "FREE") == "OK")
            #expect(mounted.hostText("secret.txt") == "secret.txt" && mounted.hostText("kept") == "kept")
        }

        /// A directory keeps its rules by whatever name it is renamed.
        private func expectDirectories(_ volume: Volume) throws {
            let mounted = try volume.mount(
                ["--hide", "conf/secret", "--protect", ".git/hooks"], ["conf/secret", ".git/hooks/pre-commit", "other/file"])
            for name in ["conf", "CONF", "Conf"] { #expect(try mounted.call("rename", name, "moved") == "EACCES", "\(name)") }
            let short = volume.isExt4 ? ".g\u{200B}it" : "GIT~1"
            for name in [".git", ".GIT", short] {
                #expect(try mounted.call("rename", name, "moved") == "EROFS", "\(name)")
                #expect(try mounted.call("write", name + "/HOOKS/PRE-COMMIT") == "EROFS", "\(name)")
            }
            #expect(try mounted.call("rename", "OTHER", "moved") == "OK")
        }

        /// A name that is hidden or protected in another spelling cannot be made.
        private func expectNewNames(_ volume: Volume) throws {
            let mounted = try volume.mount(
                ["--hide", "SECRET.txt", "--protect", ".git/hooks", "--protect", "Makefile"], ["free", "made/HOOKS/file", ".git/config"])
            #expect(try mounted.call("create", "secret.TXT") == "EACCES")
            for name in ["makefile", "MAKEFILE"] { #expect(try mounted.call("create", name) == "EROFS", "\(name)") }
            for name in [".git/HOOKS", ".GIT/hooks"] + (volume.isExt4 ? [".git/hook\u{17F}", ".git/ho\u{200B}oks"] : [".git/hooks."]) {
                let made = try mounted.call("mkdir", name)
                #expect(made == "EROFS" || (made == "EACCES" && name.hasSuffix(".")), "\(name): \(made)")
                #expect(try mounted.call("rename", "free", name) == "EROFS", "\(name)")
            }
            // The host may spell it otherwise than the rule.
            try RuledMount.make("makefile", in: mounted.source)
            #expect(try mounted.call("write", "makefile") == "EROFS")
            #expect(try mounted.call("rename", "made", ".git/sub") == "OK")
            mkdir(mounted.source + "/.git/Hooks", 0o755)
            try RuledMount.make(".git/Hooks/file", in: mounted.source)
            #expect(try mounted.call("write", ".git/Hooks/file") == "EROFS")
        }

        /// The host sets the flag on an empty directory that the mount knows.
        private func expectNewFlag(_ volume: Volume) throws {
            let calls = [
                (["open", "SECRET.TXT"], "ENOENT"), (["create", "NEWSECRET.TXT"], "EACCES"), (["write", "kept"], "EROFS"),
                (["unlink", "KEPT"], "EROFS"), (["rename", ".GIT", "moved"], "EROFS"), (["write", ".GIT/HOOKS/PRE-COMMIT"], "EROFS"),
            ]
            let mounted = try volume.mount(
                ["--hide", "*secret.txt", "--protect", "**/.git/hooks", "--protect", "Kept"], ["known/file"])
            for (index, (words, expected)) in calls.enumerated() {
                let directory = "d\(index)"
                let place = mounted.source + "/" + directory
                mkdir(place, 0o755)
                try Command.run(["chattr", "-F", place]).orThrow()
                #expect(try mounted.call("create", directory + "/SECRET.TXT") == "OK")
                #expect(try mounted.call("unlink", directory + "/SECRET.TXT") == "OK")
                try Command.run(["chattr", "+F", place]).orThrow()
                for file in ["Secret.txt", "Kept", ".git/hooks/pre-commit"] {
                    try RuledMount.make(directory + "/" + file, in: mounted.source)
                }
                let result = try Probe.call([words[0]] + words.dropFirst().map { mounted.place + "/" + directory + "/" + $0 })
                #expect(result == expected, "\(words): \(result)")
                #expect(try mounted.names(in: directory) == [".git", "Kept"], "\(words)")
            }
        }

        /// The kernel keeps the names by which files were found first.
        private func expectFirstLookups(_ volume: Volume) throws {
            let mounted = try volume.mount(["--protect", ".git/hooks"], [".git/hooks/pre-commit", "free"])
            let other = volume.isExt4 ? ".GIT" : "GIT~1"
            for name in [".GIT/HOOKS/PRE-COMMIT", other + "/hooks/pre-commit"] { _ = try mounted.call("open", name) }
            try mounted.set("--protect", ".git/hooks", "--protect", "another")
            for name in [".GIT/HOOKS/PRE-COMMIT", ".git/hooks/pre-commit", other + "/hooks/pre-commit"] {
                let result = try mounted.call("write", name)
                #expect(result == "EROFS" || result == "EACCES", "\(name): \(result)")
            }
            #expect(mounted.hostText(".git/hooks/pre-commit") == ".git/hooks/pre-commit")
        }
    }
}
