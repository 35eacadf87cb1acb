import Foundation
import TestSupport
import Testing

@testable import GrantKit

/// A new document that cannot be imported.
@Suite @MainActor struct FailedImportTests {
    private final class Delegate: DocumentBrowserDelegate {
        let made: URL
        var told: [String] = []

        init(_ made: URL) { self.made = made }

        func documentBrowser(
            _ controller: DocumentBrowser,
            didRequestDocumentCreationWithHandler importHandler: @escaping @Sendable (URL?, DocumentBrowser.ImportMode) -> Void
        ) { importHandler(made, .move) }
        func documentBrowser(_ controller: DocumentBrowser, didImportDocumentAt sourceURL: URL, toDestinationURL destinationURL: URL) {
            told.append("imported \(destinationURL.lastPathComponent)")
        }
        func documentBrowser(_ controller: DocumentBrowser, failedToImportDocumentAt documentURL: URL, error: (any Error)?) {
            told.append("failed \(documentURL.lastPathComponent) \((error as? CocoaError)?.code.rawValue ?? 0)")
        }
    }

    @Test("An import without a document is reported to the delegate with its error", arguments: Bench.waysToBrowse)
    func missing(isMounted: Bool) async throws {
        let bench = try Bench()
        let granted = try bench.plain("granted")
        try await bench.browsing(granted, isMounted: isMounted) { browser in
            let delegate = Delegate(granted.sibling("made").appendingPathComponent("new.txt"))
            browser.delegate = delegate
            browser.requestDocumentCreation()
            try await soon("it is told") { !delegate.told.isEmpty }
            #expect(delegate.told == ["failed new.txt \(CocoaError.Code.fileNoSuchFile.rawValue)"])
        }
    }

    @Test(
        "An import into a revoked directory is reported, and the document stays",
        .enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
    func revoked() async throws {
        let bench = try Bench()
        let granted = try bench.plain("granted")
        let new = try bench.plain("made").appendingPathComponent("new.txt")
        try Data("new".utf8).write(to: new)
        try await bench.browsing(granted, isMounted: true) { browser in
            try bench.fixture.revoke("granted")
            let delegate = Delegate(new)
            browser.delegate = delegate
            browser.requestDocumentCreation()
            try await soon("it is told") { !delegate.told.isEmpty }
            #expect(delegate.told == ["failed new.txt \(CocoaError.Code.fileWriteNoPermission.rawValue)"] && new.text == "new")
            try bench.fixture.restore("granted")
            browser.requestDocumentCreation()
            try await soon("it is told") { delegate.told.count == 2 }
            #expect(delegate.told.last == "imported new.txt" && new.text == nil)
            #expect(granted.appendingPathComponent("new.txt").text == "new")
        }
    }
}
