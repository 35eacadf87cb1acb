import Foundation
import TestSupport
import Testing

@testable import GrantKit

@Suite struct PickerTests {
    private func pick(_ urls: [URL], _ request: PickRequest = PickRequest()) async throws -> [GrantedDirectory] {
        try await DialogPicker { _ in urls }.pick(request)
    }

    private func inProgram(_ body: (Bench) async throws -> Void) async throws {
        let bench = try Bench()
        try await GrantEnvironment.$current.withValue(GrantEnvironment(store: bench.fixture.store)) { try await body(bench) }
    }

    @Test("A directory that is granted already can be picked again, and keeps its grant")
    func again() async throws {
        try await inProgram { bench in
            let url = try bench.plain("x/Notes")
            let first = try await pick([url])
            #expect(first.map(\.url) == [url])
            #expect(try await pick([url, url]).map(\.id) == first.map(\.id))
            #expect(try GrantedDirectory.all().count == 1)
        }
    }

    @Test("A directory whose grant was revoked is granted again when it is picked")
    func afterRevocation() async throws {
        try await inProgram { bench in
            let url = try bench.plain("x/Notes")
            let first = try await pick([url])
            try first[0].revoke()
            #expect(try GrantedDirectory.revoked().map(\.id) == first.map(\.id))
            #expect(try await pick([url]).map(\.id) == first.map(\.id))
            #expect(try GrantedDirectory.revoked().isEmpty && GrantedDirectory(containing: url).id == first[0].id)
        }
    }

    @Test("A directory whose name is taken in the view gets another name there")
    func equalNames() async throws {
        try await inProgram { bench in
            let (one, other) = (try bench.plain("x/Notes"), try bench.plain("y/Notes"))
            #expect(try await pick([one, other]).map(\.grant.name.description) == ["Notes", "Notes 2"])
            #expect(try await pick([other, one]).map(\.url) == [other, one])
        }
    }

    @Test("A pick with other rights makes a second grant and keeps the first")
    func otherRights() async throws {
        try await inProgram { bench in
            let url = try bench.plain("x/Notes")
            let first = try await pick([url], PickRequest(access: .readOnly))
            let second = try await pick([url])
            #expect(second[0].id != first[0].id && second[0].access == .readWrite)
            #expect(try GrantedDirectory.all().map(\.access) == [.readOnly, .readWrite])
            #expect(try second[0].setAccess(.readOnly).access == .readOnly)
        }
    }

    @Test("A pick with an ungrantable directory changes nothing")
    func allOrNothing() async throws {
        try await inProgram { bench in
            let (kept, revoked, new) = (try bench.plain("kept"), try bench.plain("revoked"), try bench.plain("new"))
            let before = try await pick([kept, revoked])
            try before[1].revoke()
            let missing = [new.sibling("missing"), new.sibling("gone")]
            let error = await #expect(throws: GrantError.self) { try await pick([kept, revoked, new] + missing) }
            #expect(error?.code == .invalidDirectory)
            for url in missing { #expect(error?.description.contains(url.path) == true) }
            #expect(try GrantedDirectory.all().map(\.id) == [before[0].id])
            #expect(try GrantedDirectory.revoked().map(\.id) == [before[1].id])
            #expect(try await pick([kept, revoked, new]).map(\.url) == [kept, revoked, new])
        }
    }

    @Test(
        "A pick that fails and cannot be taken back names what may still be granted",
        .enabled(if: Machine.offers("sqlite3"), "sqlite3 is not installed"))
    func notTakenBack() async throws {
        try await inProgram { bench in
            let (revoked, new) = (try bench.plain("revoked"), try bench.plain("new"))
            try await pick([revoked])[0].revoke()
            try Command.run([
                "sqlite3", bench.fixture.store + "/grants.sqlite",
                """
                CREATE TRIGGER unmade BEFORE INSERT ON grants BEGIN SELECT RAISE(ABORT, 'unmade'); END;
                CREATE TRIGGER kept BEFORE UPDATE ON grants WHEN NEW.state = 'revoked' BEGIN SELECT RAISE(ABORT, 'kept'); END;
                """,
            ]).orThrow()
            let error = await #expect(throws: GrantError.self) { try await pick([revoked, new]) }
            let text = try #require(error?.description)
            #expect(text.contains("“revoked” may still be granted") && !text.contains("nothing was granted"), "\(text)")
            #expect(try GrantedDirectory.all().count == 1)
        }
    }

    @Test("A removed grant is no longer listed, and its bookmarks fail")
    func removed() async throws {
        try await inProgram { bench in
            let granted = try await pick([bench.plain("x/Notes")])[0]
            let bookmark = try granted.bookmark()
            try granted.remove()
            #expect(try GrantedDirectory.all().isEmpty && GrantedDirectory.revoked().isEmpty)
            #expect { try bookmark.resolve() } throws: { ($0 as? GrantError)?.code == .permission }
        }
    }

    @MainActor private final class Delegate: DirectoryPickerDelegate {
        var told: [String] = []
        private var waiting: CheckedContinuation<Void, Never>?

        func documentPicker(_ picker: any DirectoryPicker, didPickDocumentsAt urls: [URL]) {
            tell("picked \(urls.map(\.lastPathComponent))")
        }
        func documentPickerWasCancelled(_ picker: any DirectoryPicker) { tell("cancelled") }

        private func tell(_ text: String) {
            told.append(text)
            waiting?.resume()
        }

        /// Picks these, and waits until the delegate is told.
        func pick(_ urls: [URL]) async {
            await withCheckedContinuation { continuation in
                waiting = continuation
                DialogPicker { _ in urls }.pick(PickRequest(), for: self)
            }
        }
    }

    @Test("A picker tells its delegate what was picked, and counts an error as cancelled")
    func delegates() async throws {
        try await inProgram { bench in
            let url = try bench.plain("x/Notes")
            let delegate = Delegate()
            await delegate.pick([url])
            await delegate.pick([])
            await delegate.pick([url.sibling("missing")])
            #expect(await delegate.told == ["picked [\"Notes\"]", "cancelled", "cancelled"])
        }
    }
}
