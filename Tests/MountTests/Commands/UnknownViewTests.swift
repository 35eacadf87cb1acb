import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A view without any grant is usually a typing error.
    @Suite struct UnknownViewTests {
        private func granted() throws -> MountFixture {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            return fixture
        }

        @Test(
            "An unknown view is refused with a suggestion by every command",
            arguments: [
                ["mount", "defualt", "{}/mount"], ["list", "--view", "defualt"], ["list", "--view", "defualt", "--json"],
                ["status", "--view", "defualt"], ["repair", "--view", "defualt"], ["repair", "--all", "--view", "defualt"],
                ["metrics", "--view", "defualt"], ["top", "--view", "defualt"], ["run", "--view", "defualt", "true"],
                ["revoke", "a", "--view", "defualt"], ["restore", "a", "--view", "defualt"],
            ])
        func unknown(_ words: [String]) throws {
            let fixture = try granted()
            let output = try fixture.grantfs(words.map { $0.replacingOccurrences(of: "{}", with: fixture.base) })
            #expect(output.status == 1 && output.text.isEmpty, "\(output)")
            #expect(output.errors.contains("“defualt”") && output.errors.contains("did you mean “default”?"), "\(output)")
            #expect(fixture.mountpoints.isEmpty)
        }

        @Test("An unknown view creates no store")
        func noStore() throws {
            let fixture = try MountFixture()
            for words in [["mount", "default", fixture.base + "/mount"], ["list", "--view", "default"], ["status", "--view", "x"]] {
                let output = try fixture.grantfs(words)
                #expect(output.status == 1 && output.errors.contains("nothing is granted yet"), "\(output)")
            }
            #expect(!FileManager.default.fileExists(atPath: fixture.store))
        }

        @Test(
            "A view mounted with `--new` is empty and shows later grants", arguments: [true, false])
        func new(asOption: Bool) throws {
            let fixture = try MountFixture()
            let mountpoint = fixture.base + "/mount"
            try fixture.grantfs(["mount", "later", mountpoint] + (asOption ? ["-o", "rw,new"] : ["--new"])).orThrow()
            #expect(try Command.run(["ls", "-A", mountpoint]).orThrow().text.isEmpty)
            try fixture.grantfs("status", "--view", "later").orThrow()
            try fixture.grantfs("list", "--view", "later").orThrow()
            try fixture.grant(try fixture.source("a"), view: "later")
            #expect(try Command.run(["ls", "-A", mountpoint]).orThrow().lines == ["a"])
        }

        @Test("A view whose grants were all revoked or removed is still known")
        func known() throws {
            let fixture = try granted()
            try fixture.grant(try fixture.source("b"), view: "past")
            try fixture.grantfs("revoke", "a").orThrow()
            try fixture.grantfs("remove", "b").orThrow()
            for view in ["default", "past"] {
                #expect(try fixture.list("--view", view).isEmpty)
                try fixture.mount(view)
                try fixture.grantfs("unmount", fixture.base + "/mount").orThrow()
            }
        }

        @Test("mount(8) refuses an unknown view with a suggestion", .enabled(if: Identity.isRoot, "needs root"))
        func mountHelper() throws {
            let fixture = try granted()
            let path = URL(fileURLWithPath: Programs.grantfs).deletingLastPathComponent().path + ":/usr/sbin:/usr/bin:/sbin:/bin"
            let output = try Command.run(
                ["sh", Programs.mountHelper, "defualt", fixture.base + "/mount"],
                environment: fixture.environment.merging(["PATH": path]) { $1 })
            #expect(output.status == 32 && output.errors.contains("did you mean “default”?"), "\(output)")
        }

        @Test("`log --grant` with an unknown grant is refused with a suggestion")
        func log() throws {
            let fixture = try granted()
            try fixture.grant(try fixture.source("gone"))
            try fixture.grantfs("remove", "gone").orThrow()
            let output = try fixture.grantfs("log", "--grant", "gnoe")
            #expect(output.status == 1 && output.text.isEmpty && output.errors.contains("did you mean “gone”?"), "\(output)")
            #expect(try fixture.grantfs("log", "--grant", "gone").orThrow().lines.count >= 2)
            // Known, and nothing of it is so new.
            #expect(try fixture.grantfs("log", "--grant", "a", "--since", "2261-01-01").orThrow().text.isEmpty)
        }
    }
}
