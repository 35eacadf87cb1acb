import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("The audit of a run", .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct RunAudits {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            try "granted\n".write(toFile: source + "/file", atomically: false, encoding: .utf8)
            try "old\n".write(toFile: source + "/old", atomically: false, encoding: .utf8)
        }

        private struct Entry: Decodable, Equatable {
            let event: String
            let program: String
            let path: String?
            let access: String?
        }

        private func run(_ script: String, _ file: String, _ options: String...) throws -> Output {
            try fixture.grantfs(["run", "--grant", source, "--audit", file] + options + ["--", "sh", "-c", script], within: 60)
        }

        private func entries(_ file: String) throws -> [Entry] {
            try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").map {
                try JSONDecoder().decode(Entry.self, from: Data($0.utf8))
            }
        }

        @Test("The audit of a run lists opened, written and removed files by command")
        func entries() throws {
            let other = try fixture.source("other")
            try fixture.grant(other)
            let file = fixture.base + "/audit"
            try "left from before".write(toFile: file, atomically: false, encoding: .utf8)
            let output = try run("cat docs/file; cp docs/file \(source)/copy; rm docs/old; exit 3", file)
            #expect(output.status == 3 && output.lines == ["granted"], "the exit status is the program's: \(output)")
            let found = try entries(file)
            let expected = [
                Entry(event: "opened", program: "cat", path: source + "/file", access: "read"),
                Entry(event: "opened", program: "cp", path: source + "/file", access: "read"),
                Entry(event: "opened", program: "cp", path: source + "/copy", access: "write"),
                Entry(event: "unlinked", program: "rm", path: source + "/old", access: nil),
            ]
            for entry in expected { #expect(found.contains(entry), "\(entry) in \(found)") }
            #expect(!found.contains { $0.path?.hasPrefix(other) == true })
        }

        @Test("The audit of a run is refused where the program could change it")
        func refused() throws {
            let inside = try run("true", source + "/audit")
            #expect(inside.status == 2 && inside.errors.contains("could change it"), "\(inside)")
            let secret = fixture.base + "/secret"
            try "secret\n".write(toFile: secret, atomically: false, encoding: .utf8)
            try FileManager.default.createSymbolicLink(atPath: fixture.base + "/link", withDestinationPath: secret)
            #expect(try run("true", fixture.base + "/link").status == 1)
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "secret\n")
            #expect(try run("true", "/dev/null").status == 1)
            #expect(try fixture.grantfs("run", "--audit", fixture.base + "/a", "--", "true").status == 2)
            #expect(!FileManager.default.fileExists(atPath: fixture.base + "/a"))
        }
    }
}
