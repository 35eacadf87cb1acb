import Foundation
import GrantModel
import Testing

@testable import GrantAdministration
@testable import GrantMounts

@Suite struct DirectoryListingTests {
    @Test("A directory listing separates directories and links and follows no link")
    func directoriesAndLinksAreToldApartAndLinksAreNotFollowed() throws {
        let base = NSTemporaryDirectory() + "grantfs-listing-\(UUID())"
        defer { try? FileManager.default.removeItem(atPath: base) }
        for name in ["a", ".b", "日"] {
            try FileManager.default.createDirectory(atPath: base + "/d/" + name, withIntermediateDirectories: true)
        }
        mkdir(Array("\(base)/d/x".utf8CString).dropLast() + [-1, 0], 0o700)
        _ = FileManager.default.createFile(atPath: base + "/d/file", contents: nil)
        for (link, target) in [("to-a", "a"), ("to-file", "file"), ("to-nothing", "nothing")] {
            try FileManager.default.createSymbolicLink(atPath: base + "/d/" + link, withDestinationPath: target)
        }
        try FileManager.default.createSymbolicLink(atPath: base + "/link", withDestinationPath: "d")

        let listing = try DirectoryListing.of(Array((base + "/link").utf8), probe: .inProcess)
        #expect(String(decoding: listing.path, as: UTF8.self).hasSuffix("/d"))
        let expected = [".b", "a", "日"].map { Array($0.utf8) } + [[0x78, 0xFF]]
        #expect(Set(listing.directories) == Set(expected))
        #expect(Set(listing.links) == Set(["to-a", "to-file", "to-nothing"].map { Array($0.utf8) }))
        #expect(listing.linksToDirectories(probe: .inProcess) == [Array("to-a".utf8)])
    }

    @Test("A failed directory listing names its cause")
    func whatCannotBeListedSaysWhy() {
        for (path, cause) in [("/nowhere/at/all", "No such file or directory"), ("/dev/null", "Not a directory")] {
            let error = #expect(throws: GrantError.self) { try DirectoryListing.of(Array(path.utf8), probe: .inProcess) }
            #expect(error?.cause == cause)
        }
    }
}
