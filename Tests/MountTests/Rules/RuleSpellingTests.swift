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
            try expectRules("vfat", mkfs: ["mkfs.vfat"], make: "d")
        }

        @Test(
            "A rule holds for each spelling in a directory with the flag casefold",
            .enabled(if: Command.exists("chattr") && Machine.foldsNames, "this kernel's ext4 does not fold names"))
        func casefold() throws {
            try expectRules("ext4", mkfs: ["mkfs.ext4", "-q", "-F", "-O", "casefold", "-E", "encoding=utf8"], make: "d")
        }

        private func expectRules(_ kind: String, mkfs: [String], make directory: String) throws {
            let fixture = try MountFixture()
            let (image, volume) = (fixture.base + "/image", try fixture.directory("volume"))
            try Command.run(["truncate", "-s", "64M", image]).orThrow()
            try Command.run(mkfs + [image]).orThrow()
            try fixture.mountOther(["mount", "-t", kind, "-o", "loop", image], at: volume)
            mkdir(volume + "/d", 0o755)
            if kind == "ext4" { try Command.run(["chattr", "+F", volume + "/d"]).orThrow() }
            let files = ["secret.txt", "kept", "free"]
            let mounted = try RuledMount(
                fixture, rules: ["--hide", "secret.txt", "--protect", "kept"], files: files, in: volume + "/d")
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
    }
}
