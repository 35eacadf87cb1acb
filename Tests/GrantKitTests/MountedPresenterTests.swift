import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Presenters in one process, claims in another.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct AFilePresenterAndAMount {
    private func mounted() throws -> (Bench, source: URL, inMount: URL) {
        let bench = try Bench()
        let source = try bench.granted("docs")
        return (bench, source, URL(fileURLWithPath: try bench.fixture.mount() + "/docs", isDirectory: true))
    }

    private func presenting<Result>(_ presenters: Noting..., while body: () throws -> Result) rethrows -> Result {
        for presenter in presenters { NSFileCoordinator.addFilePresenter(presenter) }
        PresenterRegistry.process.settle(within: Timeouts.long.presenter)
        defer { for presenter in presenters { NSFileCoordinator.removeFilePresenter(presenter) } }
        return try body()
    }

    /// Its next line that is news of others.
    private func news(_ editor: Child) throws -> String {
        while let line = editor.line() { if line.hasPrefix("* ") { return line } }
        throw TestFailure("the editor says nothing")
    }

    @Test("An editor saves before another process reads and reloads after it writes")
    func editor() throws {
        let (bench, source, inMount) = try mounted()
        for directory in [inMount, source] {
            let editor = try Child([Programs.noteEditor], environment: bench.fixture.environment)
            for line in ["open \(directory.path)/note", "type typed"] {
                editor.send(line)
                try editor.expect("done")
            }
            let read = try bench.fixture.grantfs("coordinate", "read", source.path + "/note", "--", "cat", source.path + "/note")
            #expect(try read.orThrow().text.contains("typed"))
            #expect(try [news(editor), news(editor)] == ["* somebody reads", "* saved on request"])
            try bench.fixture.grantfs("coordinate", "write", "docs", "--", "sh", "-c", "printf written > \(source.path)/note").orThrow()
            #expect(try news(editor) == "* somebody writes")
            #expect(try Set([news(editor), news(editor)]) == ["* the writer has ended", "* read again"])
            editor.send("show")
            try editor.expect("written")
        }
    }

    @Test("A presenter gets questions about other processes' work only")
    func otherProcesses() throws {
        let (bench, source, inMount) = try mounted()
        let (ofNote, ofFolder) = (Noting(inMount.appendingPathComponent("note")), Noting(source))
        try bench.program {
            try presenting(ofNote, ofFolder) {
                try bench.fixture.grantfs(
                    "coordinate", "write", "\(source.path)/note", "--for", "moving", "--to", "\(source.path)/new", "--", "mv",
                    "\(source.path)/note", "\(source.path)/new"
                ).orThrow()
                try ofNote.events.wait(for: "moved to new")
                #expect(ofNote.presentedItemURL?.path == inMount.path + "/new")
                try ofFolder.events.wait(for: "moved note to new")
                try bench.fixture.grantfs("coordinate", "write", "\(source.path)/made", "--", "touch", "\(source.path)/made").orThrow()
                try ofFolder.events.wait(for: "appeared made")
                try bench.fixture.grantfs(
                    "coordinate", "write", "\(source.path)/made", "--for", "deleting", "--", "rm", "\(source.path)/made"
                )
                .orThrow()
                try ofFolder.events.wait(for: "delete made")
                let count = ofFolder.events.all.count
                NSFileCoordinator(filePresenter: ofFolder).coordinate(writingItemAt: source, error: nil) { _ in }
                try ofNote.events.wait(for: "changed")
                // What came late of the deletion is its business, its own writing is not.
                #expect(ofFolder.events.all.dropFirst(count).allSatisfy { $0 == "writer over" || $0 == "changed made" })
            }
        }
    }

    @Test("A presenter is asked once, and in its process after an unmount")
    func fallback() throws {
        let (bench, source, _) = try mounted()
        let presenter = Noting(source)
        try bench.program {
            try presenting(presenter) {
                NSFileCoordinator().coordinate(writingItemAt: source, error: nil) { _ in }
                #expect(presenter.all().filter { $0 == "writer" }.count == 1)
                try presenter.events.wait(for: "changed")
                try bench.fixture.wait(until: "it is unmounted") {
                    try bench.fixture.grantfs("unmount", bench.fixture.base + "/mount").status == 0
                }
                NSFileCoordinator().coordinate(writingItemAt: source, error: nil) { _ in }
                try eventually("it is asked by its own process") { presenter.all().filter { $0 == "writer" }.count == 2 }
            }
        }
    }

    @Test("A presenter saves before a revocation with grace")
    func grace() throws {
        let (bench, source, _) = try mounted()
        let presenter = Noting(source)
        try bench.program {
            try presenting(presenter) {
                try bench.fixture.grantfs("revoke", "docs", "--grace", "60s", within: 90).orThrow()
                #expect(presenter.all().contains("save"))
            }
        }
    }
}
