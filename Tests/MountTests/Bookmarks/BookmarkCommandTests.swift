import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct ABookmarkCommand {
        private struct Repair: Decodable {
            let name: String
            let bookmark: String
            let needs: String
            let pruned: Bool
        }

        private func prepared(_ names: [String] = ["a"]) throws -> (MountFixture, String) {
            let fixture = try MountFixture()
            for name in names {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/x"))
                try fixture.grant(source)
            }
            return (fixture, try fixture.mount())
        }

        private func isThere(_ path: String) throws -> Bool { try Command.run(["cat", path]).status == 0 }

        @Test("`repair --confirm` accepts the directory that replaced a granted one")
        func confirm() throws {
            let (fixture, mountpoint) = try prepared()
            let source = fixture.base + "/source/a"
            #expect(try fixture.grantfs("repair", "a", "--confirm", source).status == 1)
            let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mountpoint + "/a/x"))
            try FileManager.default.removeItem(atPath: source)
            _ = try fixture.source("a")
            try Data("another".utf8).write(to: URL(fileURLWithPath: source + "/x"))
            #expect(try fixture.list().first?.bookmark == "replaced")
            try fixture.wait(until: "it is hidden") { try !isThere(mountpoint + "/a/x") }
            // No operation enters it, with or without restore.
            try fixture.restore("a")
            #expect(try !isThere(mountpoint + "/a/x"))
            try fixture.grantfs("repair", "a", "--confirm", source).orThrow()
            try fixture.wait(until: "it shows") { try isThere(mountpoint + "/a/x") }
            #expect(try Command.run(["cat", mountpoint + "/a/x"]).text == "another")
            #expect(try fixture.list().first?.bookmark == "ok")
            #expect(try fixture.grantfs("log").orThrow().text.contains("accepted another directory"))
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
        }

        @Test("`repair --confirm` refuses a link to another place")
        func confirmLink() throws {
            let (fixture, _) = try prepared()
            let source = fixture.base + "/source/a"
            try FileManager.default.removeItem(atPath: source)
            try FileManager.default.createSymbolicLink(atPath: source, withDestinationPath: fixture.base + "/outside")
            #expect(try fixture.list().first?.bookmark == "replaced")
            let refused = try fixture.grantfs("repair", "a", "--confirm", source)
            #expect(refused.status == 1)
            #expect(refused.errors.contains("a link to"))
            #expect(try fixture.list().first?.bookmark == "replaced")
        }

        @Test("`repair` names broken grants and removes only the missing ones")
        func repair() throws {
            let (fixture, _) = try prepared(["gone", "replaced", "here", "trashed"])
            #expect(try fixture.grantfs("repair", "--json").orThrow().decoded(as: [Repair].self).isEmpty)
            for name in ["gone", "replaced"] { try FileManager.default.removeItem(atPath: fixture.base + "/source/" + name) }
            _ = try fixture.source("replaced")
            let trash = try fixture.directory("source/.Trash-0/files")
            try FileManager.default.moveItem(atPath: fixture.base + "/source/trashed", toPath: trash + "/trashed")
            let before: [Repair] = try fixture.grantfs("repair", "--json").orThrow().decoded()
            let needs = Dictionary(uniqueKeysWithValues: before.map { ($0.name, $0.needs) })
            #expect(needs == ["gone": "directory", "replaced": "confirmation", "trashed": "untrashing"])
            #expect(before.allSatisfy { !$0.pruned })
            #expect(try fixture.list().count == 4)
            let said = try fixture.grantfs("repair", "--prune").orThrow()
            #expect(said.text.contains("removing gone"))
            #expect(!said.text.contains("removing replaced") && !said.text.contains("removing trashed"))
            #expect(try fixture.list().map(\.name).sorted() == ["here", "replaced", "trashed"])
        }

        @Test("`repair --confirm` accepts only what took the place of the grant's directory")
        func confirmOther() throws {
            let (fixture, _) = try prepared()
            let source = fixture.base + "/source/a"
            try FileManager.default.removeItem(atPath: source)
            _ = try fixture.source("a")
            let other = try fixture.source("other")
            let refused = try fixture.grantfs("repair", "a", "--confirm", other)
            #expect(refused.status == 1 && refused.errors.contains("was replaced by \(source)"), "\(refused)")
            let missing = try fixture.grantfs("repair", "a", "--confirm", fixture.base + "/nowhere")
            #expect(missing.status == 1 && missing.errors.contains("/nowhere"), "\(missing)")
            #expect(try fixture.list().first?.bookmark == "replaced")
            // The path as a person may type it.
            try fixture.grantfs("repair", "a", "--confirm", fixture.base + "/source/other/../a/").orThrow()
            #expect(try fixture.list().first?.bookmark == "ok")
        }

        @Test("`repair SELECTOR` shows where a bookmark points, whether or not it needs repair")
        func repairOne() throws {
            struct Shown: Decodable {
                let bookmark: String
                let state: String
                let path: String
                let needs: String?
            }
            let (fixture, _) = try prepared(["here", "gone"])
            try FileManager.default.removeItem(atPath: fixture.base + "/source/gone")
            let here: Shown = try fixture.grantfs("repair", "here", "--json").orThrow().decoded()
            #expect(here.bookmark == "ok" && here.state == "active" && here.path == fixture.base + "/source/here" && here.needs == nil)
            let gone: Shown = try fixture.grantfs("repair", "gone", "--json").orThrow().decoded()
            #expect(gone.bookmark == "missing" && gone.state == "unavailable" && gone.needs == "directory")
            #expect(try fixture.grantfs("repair", "here").orThrow().text.contains("the directory is where it was"))
            #expect(try fixture.grantfs("repair", "gone").orThrow().text.contains("its directory back, or --prune"))
        }

        @Test("`repair --all` prints every grant")
        func repairAll() throws {
            let (fixture, _) = try prepared(["a", "b"])
            try fixture.revoke("b")
            let all: [GrantDocument] = try fixture.grantfs("repair", "--all", "--json").orThrow().decoded()
            #expect(all.map(\.name) == ["a", "b"])
            #expect(try fixture.grantfs("repair", "--recorded").status == 2)
            #expect(try fixture.grantfs("repair", "a", "--all").status == 2)
        }

        @Test("A directory in a Trash is unavailable until it is taken out")
        func trash() throws {
            let (fixture, mountpoint) = try prepared()
            let source = fixture.base + "/source/a"
            let trash = try fixture.directory("source/.local/share/Trash/files")
            try FileManager.default.moveItem(atPath: source, toPath: trash + "/a")
            let grant = try #require(try fixture.list().first)
            #expect(grant.bookmark == "missing" && grant.state == "unavailable")
            #expect(try fixture.grantfs("list", "--json").orThrow().text.contains("in a Trash"))
            try fixture.wait(until: "it is hidden") { try !isThere(mountpoint + "/a/x") }
            #expect(try Command.run(["ls", mountpoint]).text.isEmpty)
            try FileManager.default.moveItem(atPath: trash + "/a", toPath: source)
            try fixture.wait(until: "it is back") { try isThere(mountpoint + "/a/x") }
            // As well when the mount was made while it lay there.
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try FileManager.default.moveItem(atPath: source, toPath: trash + "/a")
            try fixture.mount()
            #expect(try !isThere(mountpoint + "/a/x"))
            #expect(try fixture.grantfs("grant", trash + "/a", "--name", "t").status == 1)
        }

        @Test("A bookmark is renewed after a rename above its directory")
        func ancestor() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("up/a"))
            let mountpoint = try fixture.mount()
            try FileManager.default.moveItem(atPath: fixture.base + "/source/up", toPath: fixture.base + "/source/other")
            let place = fixture.base + "/source/other/a"
            // At once, whether or not the daemon has noticed already.
            #expect(try fixture.list().first?.path == place)
            #expect(try fixture.grantfs("status").orThrow().text.contains(place))
            #expect(try Command.run(["ls", mountpoint]).text == "a\n")
            try fixture.wait(until: "the new place is recorded") { try fixture.list().first?.bookmark == "ok" }
            #expect(try fixture.list().first?.path == place)
        }
    }

    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct AReleasedGrant {
        /// An ext4 image on a loop device, mounted for the fixture, on another device than
        /// `before`.
        private func volume(_ fixture: MountFixture, _ image: String, isNot before: String = "") throws -> String {
            let place = try fixture.directory("volume")
            // A device that others free just now may have the earlier number. It stays in use until
            // there is another.
            try Command.shell(
                """
                taken=""; trap 'losetup -d $device $taken' EXIT
                while device=$(losetup --find --show "$1"); [ "$(mountpoint -x "$device")" = "$2" ]; do taken="$taken $device"; done
                mount "$device" "$3"
                """, image, before, place
            ).orThrow()
            return place
        }

        private func device(_ place: String) throws -> String { try Command.run(["mountpoint", "-d", place]).orThrow().trimmed }

        private func unmount(_ place: String, _ fixture: MountFixture) throws {
            // A process that reads all mounts keeps it busy for a moment.
            try fixture.wait(until: "the volume is unmounted") { try Command.run(["umount", place]).status == 0 }
        }

        @Test("A released grant returns when its filesystem is mounted again")
        func release() throws {
            let fixture = try MountFixture()
            let image = fixture.base + "/image"
            try Command.shell("truncate -s 32M \"$1\"; mkfs.ext4 -q -F \"$1\"", image).orThrow()
            let place = try volume(fixture, image)
            try Command.shell("mkdir -p \"$1/a/deep\"; echo here > \"$1/a/x\"; chmod 755 \"$1\"", place).orThrow()
            try fixture.grant(place + "/a")
            try fixture.grant(try fixture.source("other"))
            let mountpoint = try fixture.mount()
            #expect(try Command.shell("find \"$1\" > /dev/null; cat \"$1/a/x\"", mountpoint).text == "here\n")
            #expect(try Command.run(["umount", place]).status != 0)
            let before = try device(place)

            try fixture.grantfs("release", "a").orThrow()
            #expect(try Command.run(["ls", mountpoint]).text == "other\n")
            // The volume is still there, and the grant stays away.
            usleep(1_300_000)
            #expect(try Command.run(["ls", mountpoint]).text == "other\n")
            #expect(try fixture.status().mounts.first?.grants.first { $0.name == "a" }?.state == "unavailable")
            try unmount(place, fixture)
            #expect(try fixture.list().first { $0.name == "a" }?.bookmark == "unavailable")

            // Other tests' mount namespaces have the volume for as long as they last, and until then its image is not whole.
            try fixture.wait(until: "nobody has the volume any more", within: 120) {
                try Command.run(["losetup", "-j", image]).text.isEmpty
            }
            _ = try volume(fixture, image, isNot: before)
            #expect(try device(place) != before)
            try fixture.wait(until: "it is back") { try Command.run(["cat", mountpoint + "/a/x"]).text == "here\n" }
        }
    }
}
