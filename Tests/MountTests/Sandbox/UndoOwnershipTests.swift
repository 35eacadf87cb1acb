import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `grantfs undo` of root in directories where other users may change names.
    @Suite(
        .enabled(if: Machine.hasSandboxes && TestSupport.Identity.isRoot, "needs root, and bubblewrap that can make a sandbox"))
    struct UndoOwnershipTests {
        private let fixture: MountFixture
        private let source: String

        private let user: TestSupport.Identity

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
            user = try #require(Machine.plainUser)
            // A program in a sandbox has no capability, and needs a way to write.
            chmod(source, 0o777)
        }

        private struct Listed: Decodable {
            let id: String
        }

        /// Runs a script with a snapshot. Returns the snapshot's id.
        private func run(_ script: String) throws -> String {
            try fixture.grantfs(["run", "--snapshot", "--grant", source, "--", "sh", "-euc", "cd '\(source)'; " + script]).orThrow()
            return try #require(try fixture.grantfs("diff", "--list", "--json").orThrow().decoded(as: [Listed].self).first).id
        }

        private func status(_ path: String) throws -> stat {
            var status = stat()
            guard lstat(path, &status) == 0 else { throw TestFailure("lstat \(path): \(String(cString: strerror(errno)))") }
            return status
        }

        @Test("An undo of mode or owner leaves an open file unchanged", arguments: [0o4755, 0o2755, 0o640] as [mode_t])
        func newInode(mode: mode_t) throws {
            let path = source + "/tool"
            try Data("contents".utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, mode)
            let id = try run("cp -p tool copy; chmod 666 copy; mv -f copy tool")
            let held = open(path, O_RDWR)
            defer { close(held) }
            try fixture.grantfs("undo", id).orThrow()
            var found = stat()
            #expect(fstat(held, &found) == 0 && found.st_mode & 0o7777 == 0o666, "\(String(found.st_mode, radix: 8))")
            let made = try status(path)
            #expect(made.st_ino != found.st_ino && made.st_mode & 0o7777 == mode, "\(String(made.st_mode, radix: 8))")
        }

        private func make(_ name: String, _ text: String = "contents", mode: mode_t = 0o644) throws {
            let path = source + "/" + name
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, mode)
        }

        @Test("An undo leaves a private file unreadable after its directory was exchanged")
        func exchangedForAnOpenOne() throws {
            chown(source, user.uid, user.gid)
            for (name, mode) in [("closed", 0o700), ("open", 0o755)] as [(String, mode_t)] {
                mkdir(source + "/" + name, mode)
                try make(name + "/file", "of \(name)")
                // Of a third user, neither the caller nor root.
                for path in [name, name + "/file"] { chown(source + "/" + path, 54_321, 54_321) }
            }
            let id = try run("touch made")
            rename(source + "/closed", source + "/away")
            rename(source + "/open", source + "/closed")
            _ = try fixture.grantfs("undo", id, "--force")
            let readable = try Command.shell("cat \"$1\"/*/file", source, as: user).text
            #expect(!readable.contains("of closed"), "\(readable)")
        }

        @Test("A run copies no directory that replaced the recorded one")
        func exchangedBeforeTheCopy() throws {
            let stops = try StopPoints(fixture)
            mkdir(source + "/granted", 0o755)
            try make("granted/file", "of granted")
            mkdir(source + "/secret", 0o700)
            try make("secret/file", "of secret")
            stops.arm("copying")
            let words = ["run", "--snapshot", "--grant", source + "/granted", "--", "true"]
            let program = try Child([Programs.grantfsWithFaults] + words, environment: fixture.environment, separateErrors: true)
            try stops.awaitStop("copying")
            rename(source + "/granted", source + "/away")
            rename(source + "/secret", source + "/granted")
            stops.goOn("copying")
            let output = try #require(program.collected(within: 60))
            #expect(program.wait() != 0 && output.errors.contains("another directory"), "\(output.errors)")
            #expect(try fixture.grantfs("diff", "--list", "--json").decoded(as: [Listed].self).isEmpty)
        }

        @Test("An undo makes no object where other users can exchange it")
        func madeInStaging() throws {
            for name in ["file", "changed", "private"] { try make(name, mode: 0o600) }
            try Command.shell("cd \"$1\"; mkfifo pipe; ln -s file link; mkdir -p tree/below; echo x > tree/below/f", source).orThrow()
            let id = try run("rm -r pipe link tree file private; echo more >> changed; echo new > added")
            let watch = try NameWatch(source)
            try fixture.grantfs("undo", id).orThrow()
            let events = watch.events()
            for event in events where event.isMade { #expect(event.isDirectory && event.name.hasPrefix(".grantfs-"), "\(event)") }
            let complete = Set(events.filter(\.isMoved).map(\.name))
            #expect(complete.isSuperset(of: ["file", "changed", "private", "pipe", "link", "tree"]), "\(complete)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: source).filter { $0.hasPrefix(".grantfs-") } == [])
        }

        @Test("An undo does not change or fill an exchanged directory")
        func exchangedDirectory() throws {
            for (name, mode) in [("shared", 0o777), ("secret", 0o700)] as [(String, mode_t)] {
                mkdir(source + "/" + name, 0o755)
                chmod(source + "/" + name, mode)
            }
            chown(source + "/shared", user.uid, user.gid)
            try make("shared/file")
            let id = try run("rm shared/file")
            try Command.shell("cd \"$1\"; chmod 755 shared; mv shared elsewhere; mv secret shared", source, as: user).orThrow()
            let output = try fixture.grantfs("undo", "--force", id)
            #expect(output.status == 3, "\(output)")
            let found = try status(source + "/shared")
            #expect(found.st_uid == 0 && found.st_mode & 0o7777 == 0o700, "\(found)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: source + "/shared").isEmpty)
        }

        @Test(
            "An undo gives no access by the default ACL of a directory", .enabled(if: Command.exists("setfacl"), "there is no setfacl(1)"))
        func defaultACL() throws {
            try make("file", mode: 0o660)
            guard try Command.run(["setfacl", "-d", "-m", "u:\(user.uid):rwx", source]).status == 0 else { return }
            let id = try run("rm file")
            try fixture.grantfs("undo", id).orThrow()
            let list = try Command.run(["getfacl", "-cn", source + "/file"]).orThrow().text
            #expect(!list.contains("user:\(user.uid):"), "\(list)")
        }

        @Test("An undo leaves a directory of root alone that a user gave a temporary name")
        func forgedStaging() throws {
            try make("file")
            let id = try run("rm file")
            let (secret, forged) = (source + "/secret", source + "/.grantfs-\(id)abcd")
            mkdir(secret, 0o700)
            try make("secret/kept")
            mkdir(secret + "/below", 0o700)
            try Command.shell("mv \"$1\" \"$2\"", secret, forged, as: user).orThrow()
            try fixture.grantfs("undo", id).orThrow()
            #expect(try FileManager.default.contentsOfDirectory(atPath: forged).sorted() == ["below", "kept"])
        }

        @Test("An undo restores every owner in a directory of another user")
        func ownersAreGivenBack() throws {
            try Command.shell(
                "cd \"$1\"; mkdir tree; echo x > tree/own; echo x > tree/root; chown -R \"$2:$3\" tree; chown 0:0 tree/root; chmod 4755 tree/root; chmod 777 tree",
                source, "\(user.uid)", "\(user.gid)"
            ).orThrow()
            let id = try run("rm -r tree")
            try fixture.grantfs("undo", id).orThrow()
            let (tree, own, root) = (try status(source + "/tree"), try status(source + "/tree/own"), try status(source + "/tree/root"))
            #expect(tree.st_uid == user.uid && own.st_uid == user.uid && root.st_uid == 0 && root.st_mode & 0o7777 == 0o4755)
        }
    }
}
