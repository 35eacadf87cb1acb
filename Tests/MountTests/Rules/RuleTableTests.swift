import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Every call on names that rules hide or protect.
    @Suite struct RuleTableTests {
        @Test("A hidden name gives ENOENT, and EACCES to calls that would make it", arguments: RuledMount.modes)
        func hidden(_ mode: String) throws {
            let files = ["free", "secret", "d/vault/inside", "d/secret", "link-target"]
            let mounted = try RuledMount(mode, rules: ["--hide", "secret", "--hide", "vault/"], files: files)
            for name in ["secret", "d/vault", "d/vault/inside", "d/secret"] {
                for call in [
                    "stat", "access", "open", "open-for-writing", "write", "write-truncated", "list", "truncate", "utimens", "chown",
                    "unlink",
                    "rmdir", "chdir", "statfs", "readlink",
                ] {
                    #expect(try mounted.call(call, name) == "ENOENT", "\(call) \(name)")
                }
                #expect(try mounted.call("chmod", name, "=600") == "ENOENT", "chmod \(name)")
                #expect(try mounted.call("getxattr", name, "=user.a") == "ENOENT", "getxattr \(name)")
                #expect(try mounted.call("setxattr", name, "=user.a") == "ENOENT", "setxattr \(name)")
                #expect(try mounted.call("rename", name, "other") == "ENOENT", "rename \(name)")
                #expect(try mounted.call("link", name, "other") == "ENOENT", "link \(name)")
                #expect(try mounted.call("exchange", name, "free") == "ENOENT", "exchange \(name)")
            }
            for name in ["secret", "d/secret", "new/secret"] {
                if name.hasPrefix("new") { #expect(try mounted.call("mkdir", "new") == "OK") }
                for call in ["create", "mkdir", "mkfifo"] { #expect(try mounted.call(call, name) == "EACCES", "\(call) \(name)") }
                for call in ["rename", "noreplace", "link"] { #expect(try mounted.call(call, "free", name) == "EACCES", "\(call) \(name)") }
                #expect(try mounted.call("symlink", "free", name) == "EACCES", "symlink \(name)")
                #expect(try mounted.call("name-nameless", "d", name) == "EACCES", "linkat \(name)")
            }
            #expect(try mounted.call("mkdir", "vault") == "EACCES")
            #expect(try mounted.call("rename", "d", "vault") == "EACCES")
            #expect(try mounted.call("create", "vault") == "OK", "the rule is for directories")
            #expect(try mounted.call("symlink", "=secret", "pointer") == "OK")
            #expect(try mounted.call("open", "pointer") == "ENOENT")
            #expect(try mounted.names() == ["d", "free", "link-target", "new", "pointer", "vault"])
            #expect(try mounted.names(in: "d") == [])
            #expect(mounted.hostText("secret") == "secret" && mounted.hostText("d/vault/inside") == "d/vault/inside")
        }

        @Test("A protected name can be read, and each change gives EROFS", arguments: RuledMount.modes)
        func protected(_ mode: String) throws {
            let files = ["free", "kept", "locked/inside", "locked/deep/inside", "d/kept", "e/f/locked/inside", "empty/"]
            let mounted = try RuledMount(mode, rules: ["--protect", "kept", "--protect", "locked"], files: files)
            for name in ["kept", "locked/inside", "locked/deep/inside", "d/kept"] {
                #expect(mounted.text(name) == name)
                for call in ["stat", "access", "open", "statfs"] { #expect(try mounted.call(call, name) == "OK", "\(call) \(name)") }
                for call in ["write", "write-truncated", "truncate", "utimens", "chown", "unlink"] {
                    #expect(try mounted.call(call, name) == "EROFS", "\(call) \(name)")
                }
                #expect(try mounted.call("chmod", name, "=600") == "EROFS", "chmod \(name)")
                #expect(try mounted.call("setxattr", name, "=user.a") == "EROFS", "setxattr \(name)")
                #expect(try mounted.call("removexattr", name, "=user.a") == "EROFS", "removexattr \(name)")
                #expect(try mounted.call("rename", name, "other") == "EROFS", "rename \(name)")
                #expect(try mounted.call("rename", "free", name) == "EROFS", "rename to \(name)")
                #expect(try mounted.call("link", name, "other") == "EROFS", "link \(name)")
                #expect(try mounted.call("exchange", name, "free") == "EROFS", "exchange \(name)")
                #expect(try mounted.call("exchange", "free", name) == "EROFS", "exchange with \(name)")
            }
            for name in ["locked/new", "locked/deep/new", "empty/kept", "empty/locked"] {
                for call in ["create", "mkdir", "mkfifo"] { #expect(try mounted.call(call, name) == "EROFS", "\(call) \(name)") }
                for call in ["rename", "link"] { #expect(try mounted.call(call, "free", name) == "EROFS", "\(call) \(name)") }
                #expect(try mounted.call("symlink", "free", name) == "EROFS", "symlink \(name)")
                #expect(try mounted.call("name-nameless", "empty", name) == "EROFS", "linkat \(name)")
            }
            #expect(try mounted.call("nameless", "locked") == "EROFS")
            #expect(try mounted.call("rmdir", "locked") == "EROFS")
            #expect(try mounted.names(in: "locked") == ["deep", "inside"])
            for name in ["locked", "d", "e", "e/f"] {
                #expect(try mounted.call("rename", name, "empty/x") == "EROFS", "rename \(name), which contains something protected")
                #expect(try mounted.call("exchange", name, "empty") == "EROFS", "exchange \(name)")
                #expect(try mounted.call("rmdir", name) == "EROFS", "rmdir \(name)")
            }
            #expect(try mounted.call("rename", "empty", "moved") == "OK")
            #expect(try mounted.call("create", "d/other") == "OK")
            for name in files.dropFirst().dropLast() { #expect(mounted.hostText(name) == name) }
        }

        @Test("With --only nothing else is visible, and directories on the way are", arguments: RuledMount.modes)
        func only(_ mode: String) throws {
            let files = ["a.c", "b.h", "src/c.c", "src/d.h", "src/deep/e.h", "docs/guide/page", "docs/more", "other/f.h"]
            let mounted = try RuledMount(mode, rules: ["--only", "/src/**/*.c", "--only", "/docs/"], files: files)
            #expect(try mounted.names() == ["docs", "src"])
            #expect(try mounted.names(in: "src") == ["c.c", "deep"])
            #expect(try mounted.names(in: "src/deep") == [])
            #expect(try mounted.names(in: "docs") == ["guide", "more"])
            #expect(mounted.text("docs/guide/page") == "docs/guide/page" && mounted.text("src/c.c") == "src/c.c")
            for name in ["a.c", "src/d.h", "src/deep/e.h", "other", "other/f.h"] {
                for call in ["stat", "open", "write", "unlink"] { #expect(try mounted.call(call, name) == "ENOENT", "\(call) \(name)") }
            }
            for name in ["new.h", "src/new.h", "src/deep/new.h"] {
                #expect(try mounted.call("create", name) == "EACCES", "create \(name)")
                #expect(try mounted.call("rename", "src/c.c", name) == "EACCES", "rename to \(name)")
                #expect(try mounted.call("link", "src/c.c", name) == "EACCES", "link to \(name)")
            }
            #expect(try mounted.call("mkdir", "elsewhere") == "EACCES")
            #expect(try mounted.call("mkdir", "src/new") == "OK")
            #expect(try mounted.call("create", "src/new/g.c") == "OK")
            #expect(try mounted.call("create", "docs/guide/h") == "OK")
        }
    }
}
