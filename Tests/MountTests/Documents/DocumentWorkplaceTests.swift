import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests.AGrantOfAFile {
    @Test(
        "Files beside a document are hidden from a grant of its directory",
        arguments: ["shared", "exclusive"])
    func workplace(cache: String) throws {
        let fixture = try MountFixture()
        let document = try GrantedDocument(fixture, options: "cache=" + cache)
        try fixture.grant(document.directory, name: "all")
        let all = document.mountpoint + "/all"
        try fixture.wait(until: "the directory is shown") { FileManager.default.fileExists(atPath: all + "/report.txt") }
        try document.write("draft\n", document.mountpoint + "/docs/draft")
        let place = try #require(
            document.workplaces.first { GrantedDocument.text(document.directory + "/" + $0 + "/draft") != nil })
        #expect(try FileManager.default.contentsOfDirectory(atPath: all).sorted() == ["report.txt", "secret"])
        #expect(try Command.run(["find", all, "-name", ".grantfs-*"]).orThrow().text.isEmpty)
        let hidden = all + "/" + place
        #expect(GrantedDocument.text(hidden + "/draft") == nil && access(hidden, F_OK) != 0 && errno == ENOENT)
        #expect(link(all + "/secret", hidden + "/secret") != 0 && errno == ENOENT)
        #expect(rename(hidden, all + "/elsewhere") != 0 && errno == ENOENT)
        #expect(mkdir(hidden, 0o755) != 0 && errno == EACCES)
        let other = all + "/.grantfs-0123456789abcdef"
        try #require(mkdir(all + "/d", 0o755) == 0)
        #expect(rename(all + "/d", other) != 0 && errno == EACCES)
        #expect(open(other, O_CREAT | O_WRONLY, 0o644) < 0 && errno == EACCES)
        #expect(symlink("secret", other) != 0 && errno == EACCES && link(all + "/secret", other) != 0 && errno == EACCES)
        // Names that only look alike are the user's.
        for name in ["/.grantfs-0123456789abcdeg", "/.grantfs-0123456789abcde", "/.grantfs-x"] {
            try document.write("own", all + name)
            #expect(GrantedDocument.text(document.directory + name) == "own" && GrantedDocument.text(all + name) == "own")
        }
        #expect(GrantedDocument.text(document.mountpoint + "/docs/draft") == "draft\n")
    }

    /// A document of root's store in a plain user's directory.
    private func documentOfAUser() throws -> (fixture: MountFixture, directory: String, user: TestSupport.Identity) {
        let fixture = try MountFixture()
        let user = try #require(Machine.plainUser)
        let directory = try fixture.source("papers")
        try Data("old\n".utf8).write(to: URL(fileURLWithPath: directory + "/report.txt"))
        for path in [directory, directory + "/report.txt"] { chown(path, user.uid, user.gid) }
        try fixture.grantfs("grant", directory + "/report.txt", "--as-directory").orThrow()
        return (fixture, directory, user)
    }

    @Test("An abandoned workplace is removed and a new one is left")
    func abandonedWorkplaces() throws {
        let document = try GrantedDocument(MountFixture())
        try document.fixture.grantfs("unmount", document.mountpoint).orThrow()
        let (abandoned, begun) = (document.directory + "/.grantfs-0123456789abcdef", document.directory + "/.grantfs-fedcba9876543210")
        for path in [abandoned, begun] {
            try #require(mkdir(path, 0o700) == 0)
            chown(path, document.fixture.owner.uid, document.fixture.owner.gid)
        }
        try #require(chmod(begun, 0o1700) == 0)
        try document.fixture.mount()
        try document.fixture.wait(until: "the abandoned one is removed") { access(abandoned, F_OK) != 0 }
        #expect(access(begun, F_OK) == 0)
        rmdir(begun)
    }

    @Test("A workplace of root's daemon has its owner before it has its name", .enabled(if: TestSupport.Identity.isRoot))
    func workplaceIsMadeComplete() throws {
        let (fixture, directory, user) = try documentOfAUser()
        let watch = try NameWatch(directory)
        let mountpoint = try fixture.mount()
        let place = try #require(try FileManager.default.contentsOfDirectory(atPath: directory).first { $0.hasPrefix(".grantfs-") })
        let events = watch.events().filter { $0.name == place }
        #expect(events.contains { $0.isMoved } && !events.contains { $0.isMade }, "\(events)")
        var status = stat()
        #expect(stat(directory + "/" + place, &status) == 0 && status.st_uid == user.uid && status.st_mode & 0o7777 == 0o700)
        try Command.shell("cd \"$1\"; mkdir -p a/b; : > a/b/f", directory + "/" + place, as: user).orThrow()
        try fixture.grantfs("unmount", mountpoint).orThrow()
        try fixture.wait(until: "the workplace is removed") {
            try FileManager.default.contentsOfDirectory(atPath: directory) == ["report.txt"]
        }
    }

    @Test("A workplace is removed with its owner's rights", .enabled(if: TestSupport.Identity.isRoot))
    func workplaceIsRemovedAsOwner() throws {
        let (fixture, directory, user) = try documentOfAUser()
        let mountpoint = try fixture.mount()
        let place = try #require(try FileManager.default.contentsOfDirectory(atPath: directory).first { $0.hasPrefix(".grantfs-") })
        try Command.shell(
            "cd \"$1\"; mkdir outer outer/of-root; echo kept > outer/of-root/file; chown \"$2\" outer", directory, "\(user.uid)"
        )
        .orThrow()
        try Command.shell("cd \"$1\"; mv outer \"$2\"", directory, place, as: user).orThrow()
        try fixture.grantfs("unmount", mountpoint).orThrow()
        let left = try Command.run(["find", directory, "-name", "file", "-exec", "cat", "{}", "+"]).orThrow().text
        #expect(left == "kept\n")
    }
}
