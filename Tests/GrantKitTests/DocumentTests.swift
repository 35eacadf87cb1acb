import Foundation
import TestSupport
import Testing

@testable import GrantKit

@Suite struct AGrantedFile {
    @Test("A scope starts for a granted file and not for its siblings")
    func granted() throws {
        let bench = try Bench()
        let directory = try bench.fixture.source("papers")
        for name in ["note", "secret"] { try Data(name.utf8).write(to: URL(fileURLWithPath: directory + "/" + name)) }
        let file = URL(fileURLWithPath: directory + "/note")
        try bench.program {
            #expect(throws: GrantError.self) { try GrantedDirectory.grant(file) }
            let granted = try GrantedDirectory.grant(file, document: .directory)
            #expect(granted.url.path == file.path && !granted.isInMount)
            #expect(granted.url.startAccessingSecurityScopedResource())
            granted.url.stopAccessingSecurityScopedResource()
            #expect(!URL(fileURLWithPath: directory + "/secret").startAccessingSecurityScopedResource())
        }
        guard Machine.hasFUSE else { return }
        let mountpoint = try bench.fixture.mount()
        try bench.program {
            let shown = try #require(try GrantedDirectory.all().first)
            #expect(shown.url.path == mountpoint + "/note/note" && shown.isInMount)
            #expect(try Data(contentsOf: shown.url) == Data("note".utf8))
            try Data("saved".utf8).write(to: shown.url, options: .atomic)
        }
        #expect(try Data(contentsOf: file) == Data("saved".utf8))
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: directory).filter { !$0.hasPrefix(".grantfs-") }.sorted() == [
                "note", "secret",
            ])
    }
}
