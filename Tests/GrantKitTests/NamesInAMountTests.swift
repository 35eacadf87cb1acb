import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Records every URL that it receives, with its event.
private final class Naming: NSObject, NSFilePresenter {
    let events = Events()
    let presentedItemOperationQueue = OperationQueue()
    private let item: Lock<URL>

    init(_ url: URL) {
        item = Lock(url)
        presentedItemOperationQueue.maxConcurrentOperationCount = 1
    }

    var presentedItemURL: URL? { item.withLock { $0 } }
    func presentedItemDidMove(to newURL: URL) {
        item.withLock { $0 = newURL }
        events.add("moved to \(newURL.path)")
    }
    func presentedItemDidChange() { events.add("changed") }
    func presentedSubitemDidAppear(at url: URL) { events.add("appeared \(url.path)") }
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) { events.add("moved \(oldURL.path) to \(newURL.path)") }
    func presentedSubitemDidChange(at url: URL) { events.add("changed \(url.path)") }
    func accommodatePresentedSubitemDeletion(at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        events.add("delete \(url.path)")
        completionHandler(nil)
    }
}

/// An item named in a mount keeps that name, regardless of the directory on the host.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct NamesInAMount {
    private let bench: Bench
    private let source: URL
    private let inMount: URL

    init() throws {
        bench = try Bench()
        source = try bench.granted("docs")
        inMount = URL(fileURLWithPath: try bench.fixture.mount() + "/docs", isDirectory: true)
    }

    private func presenting(_ presenters: Naming..., while body: () throws -> Void) throws {
        try bench.program {
            for presenter in presenters { NSFileCoordinator.addFilePresenter(presenter) }
            PresenterRegistry.process.settle(within: Timeouts.long.presenter)
            defer { for presenter in presenters { NSFileCoordinator.removeFilePresenter(presenter) } }
            try body()
        }
    }

    private func coordinate(_ words: String...) throws { try bench.fixture.grantfs(["coordinate"] + words).orThrow() }

    @Test("A presenter sees no names outside the mount after a rename of the directory")
    func renamed() throws {
        let (ofNote, ofFolder, onHost) = (Naming(inMount.appendingPathComponent("note")), Naming(inMount), Naming(source))
        try presenting(ofNote, ofFolder, onHost) {
            let moved = source.sibling("moved")
            try coordinate("write", source.path, "--", "mv", source.path, moved.path)
            try onHost.events.wait(for: "moved to \(moved.path)")
            try coordinate("write", moved.path + "/note", "--", "touch", moved.path + "/note")
            try ofFolder.events.wait(for: "changed \(inMount.path)/note")
            try onHost.events.wait(for: "changed \(moved.path)/note")
            // Without coordination.
            let again = source.sibling("again")
            try moved.move(to: again)
            try onHost.events.wait(for: "moved to \(again.path)")
            try coordinate("write", again.path + "/new", "--", "touch", again.path + "/new")
            try ofFolder.events.wait(for: "appeared \(inMount.path)/new")
            try onHost.events.wait(for: "appeared \(again.path)/new")
            try coordinate("write", again.path + "/new", "--for", "deleting", "--", "rm", again.path + "/new")
            try ofFolder.events.wait(for: "delete \(inMount.path)/new")
            try coordinate(
                "write", again.path + "/note", "--for", "moving", "--to", again.path + "/renamed", "--", "mv", again.path + "/note",
                again.path + "/renamed")
            try ofFolder.events.wait(for: "moved \(inMount.path)/note to \(inMount.path)/renamed")
            try ofNote.events.wait(for: "moved to \(inMount.path)/renamed")
            let inside = ofNote.events.all + ofFolder.events.all
            #expect(inside.allSatisfy { !$0.contains(source.deletingLastPathComponent().path + "/") }, "\(inside)")
            #expect(ofFolder.presentedItemURL == inMount)
        }
    }

    @Test("A file that is moved out of the grant is reported as changed, without a name")
    func movedOut() throws {
        let (ofNote, ofFolder) = (Naming(inMount.appendingPathComponent("note")), Naming(inMount))
        let outside = try bench.granted("outside").appendingPathComponent("taken")
        try presenting(ofNote, ofFolder) {
            try coordinate(
                "write", source.path + "/note", "--for", "moving", "--to", outside.path, "--", "mv", source.path + "/note", outside.path)
            try ofFolder.events.wait(for: "changed \(inMount.path)/note")
            try ofNote.events.wait(for: "changed")
            let all = ofNote.events.all + ofFolder.events.all
            #expect(all.allSatisfy { !$0.contains("taken") }, "\(all)")
        }
    }

    @Test("A presenter is told its new URL when the grant gets another name")
    func grantRenamed() throws {
        let (ofNote, ofFolder) = (Naming(inMount.appendingPathComponent("note")), Naming(inMount))
        try presenting(ofNote, ofFolder) {
            try bench.fixture.grantfs("set", "docs", "--name", "papers").orThrow()
            let papers = inMount.sibling("papers")
            try ofNote.events.wait(for: "moved to \(papers.path)/note")
            try ofFolder.events.wait(for: "moved to \(papers.path)")
            #expect(ofNote.presentedItemURL?.text == "here")
            try coordinate("write", source.path + "/note", "--", "touch", source.path + "/note")
            try ofFolder.events.wait(for: "changed \(papers.path)/note")
        }
    }

    @Test("A bookmark of a URL in a mount is stale only if it leads elsewhere")
    func bookmarks() throws {
        let note = inMount.appendingPathComponent("note")
        try bench.program {
            let made = try [inMount, note].map { try $0.bookmarkData(options: .withSecurityScope) }
            let onHost = try source.appendingPathComponent("note").bookmarkData(options: .withSecurityScope)
            let moved = source.sibling("moved")
            try source.move(to: moved)
            #expect(try made.map { try bench.resolve($0).url.path } == [inMount.path, note.path])
            #expect(try made.map { try bench.resolve($0).isStale } == [false, false])
            // Its own URL is another one.
            #expect(try bench.resolve(onHost).isStale)
            // The view mounted elsewhere is the same view.
            try bench.fixture.wait(until: "it is unmounted") {
                try bench.fixture.grantfs("unmount", inMount.deletingLastPathComponent().path).status == 0
            }
            let other = try bench.fixture.mount(at: "other")
            #expect(try made.map { try bench.resolve($0).isStale } == [false, false])
            // Renamed in the mount, or with the grant.
            try moved.appendingPathComponent("note").move(to: moved.appendingPathComponent("renamed"))
            #expect(try bench.resolve(made[1]).isStale && !bench.resolve(made[0]).isStale)
            try bench.fixture.grantfs("set", "docs", "--name", "papers").orThrow()
            let found = try bench.resolve(made[0])
            #expect(found.isStale && found.url.path == other + "/papers")
            #expect(try !bench.resolve(found.url.bookmarkData(options: .withSecurityScope)).isStale)
        }
    }

    @Test(
        "A bookmark of a bind mount of a view is not stale after a move of the source",
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func bound() throws {
        let place = try bench.plain("bound")
        try bench.fixture.mountOther(["mount", "--bind", inMount.path], at: place.path)
        try bench.program {
            let made = try place.appendingPathComponent("note").bookmarkData(options: .withSecurityScope)
            #expect(try !bench.resolve(made).isStale)
            try source.move(to: source.sibling("moved"))
            #expect(try !bench.resolve(made).isStale)
        }
    }
}
