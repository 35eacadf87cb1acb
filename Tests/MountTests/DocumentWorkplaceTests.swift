import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests.AGrantOfAFile {
    @Test(
        "has what programs make beside it for itself: whoever has its directory neither sees nor names the place",
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
}
