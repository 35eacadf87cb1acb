import Foundation
import TestSupport
import Testing

@testable import GrantKit

extension Timeouts {
    /// Timeouts that every answer meets on a slow machine.
    static let long = Timeouts(daemon: 60, look: 60, presenter: 60)
}

/// A store with granted directories that this process works on, as a program does that uses the library. Nothing is mounted until asked for.
struct Bench {
    let fixture: MountFixture

    init(owner: Identity = .current) throws { fixture = try MountFixture(owner: owner) }

    /// Runs a part of a program whose store is this one.
    func program<Result>(usesMountsOnly: Bool = false, _ body: () throws -> Result) rethrows -> Result {
        var environment = GrantEnvironment(store: fixture.store, usesMountsOnly: usesMountsOnly)
        environment.timeouts = .long
        return try GrantEnvironment.$current.withValue(environment) { try body() }
    }

    /// Runs a part of a program that cannot read the store, as in a world of its own where only the mount shows.
    func programWithoutStore<Result>(_ timeouts: Timeouts = .long, _ body: () throws -> Result) rethrows -> Result {
        var environment = GrantEnvironment(store: fixture.base + "/no-store")
        environment.timeouts = timeouts
        return try GrantEnvironment.$current.withValue(environment) { try body() }
    }

    /// A granted directory with a file in it, as the URL of the directory itself.
    func granted(_ name: String, _ more: String...) throws -> URL {
        let directory = try fixture.source(name)
        try Data("here".utf8).write(to: URL(fileURLWithPath: directory + "/note"))
        try fixture.grantfs(["grant", directory] + more).orThrow()
        return URL(fileURLWithPath: directory, isDirectory: true)
    }

    /// An ungranted directory.
    func plain(_ name: String) throws -> URL { URL(fileURLWithPath: try fixture.directory("plain/" + name), isDirectory: true) }

    func resolve(_ data: Data, options: URL.BookmarkResolutionOptions = []) throws -> (url: URL, isStale: Bool) {
        var isStale = false
        let url = try URL(resolvingBookmarkData: data, options: options, bookmarkDataIsStale: &isStale)
        return (url, isStale)
    }

    /// The error of resolving the data, or nil if it succeeds.
    func failure(_ data: Data) -> CocoaError.Code? { cocoaCode { _ = try resolve(data) } }
}

extension Bench {
    /// Runs a part of a program with a browser that has started, of a directory that it grants.
    @MainActor func browsing(
        _ directory: URL, extensions: Set<String>? = nil, isMounted: Bool, _ body: @MainActor (DocumentBrowser) async throws -> Void
    ) async throws {
        try fixture.grantfs("grant", directory.path).orThrow()
        if isMounted { _ = try fixture.mount() }
        var environment = GrantEnvironment(store: fixture.store)
        environment.timeouts = .long
        try await GrantEnvironment.$current.withValue(environment) {
            let directories = try GrantedDirectory.all()
            #expect(directories.map(\.isInMount) == [isMounted])
            let browser = DocumentBrowser(directories, extensions: extensions)
            await browser.start()
            defer { browser.stop() }
            try await body(browser)
        }
    }

    /// Whether a test of a browser mounts the view: it runs once without a mount and, if possible, once with one.
    static let waysToBrowse = Machine.hasFUSE ? [false, true] : [false]
}

/// Waits until the condition holds. After a minute the test fails.
@MainActor func soon(_ what: String, _ condition: @MainActor () throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(60)
    while try !condition() {
        if ContinuousClock.now > deadline { throw TestFailure("not within a minute: \(what)") }
        try await Task.sleep(for: .milliseconds(5))
    }
}

/// The code of NSCocoaErrorDomain that `body` fails with, or nil if it succeeds. Another error
/// fails the test.
func cocoaCode(_ body: () throws -> Void) -> CocoaError.Code? {
    do {
        try body()
        return nil
    } catch let error as CocoaError {
        // The details are in the underlying error.
        #expect(error.underlying is GrantError)
        return error.code
    } catch {
        Issue.record("no CocoaError: \(error)")
        return nil
    }
}

extension URL {
    func move(to url: URL) throws { try FileManager.default.moveItem(at: self, to: url) }
    func remove() throws { try FileManager.default.removeItem(at: self) }
    func make() throws { try FileManager.default.createDirectory(at: self, withIntermediateDirectories: true) }
    func sibling(_ name: String) -> URL { deletingLastPathComponent().appendingPathComponent(name, isDirectory: hasDirectoryPath) }
    var text: String? { try? String(contentsOf: self, encoding: .utf8) }
}

extension MountFixture {
    /// `grantfs coordinate`, which holds a claim until its input ends.
    func holding(_ kind: String, _ path: String) throws -> Child {
        let child = try Child(
            [Programs.grantfs, "coordinate", kind, path, "--", "sh", "-c", "echo held; cat"], environment: environment)
        try child.expect("held")
        return child
    }
}
