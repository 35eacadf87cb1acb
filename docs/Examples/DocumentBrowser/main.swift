// DocumentBrowser: the documents of granted directories, in the terminal.
//
//     pick DIR[:DIR…] · list · filter TEXT · choose N · open N · new NAME · make NAME · import FILE · reveal FILE
//     type TEXT · show · save · close · rename N NAME · delete N
//
// `make` makes a document elsewhere, and imports it. N counts from 1, as in `list`. The output of a command ends with a line `done` or `failed`.
// Changes by other programs appear in lines that begin with `*`.
import Foundation
import GrantKit

@MainActor final class Program: DocumentBrowserDelegate {
    private var browser: DocumentBrowser?
    private var document: TextDocument?
    /// The name of the document that `make` makes.
    private var nameToMake = ""

    private func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }

    /// Shows the present and future grants of the program's view.
    func begin() async throws {
        browser?.stop()
        let begun = DocumentBrowser(try GrantedDirectory.all(in: try ViewName("documents")), extensions: ["txt", "md"])
        browser = begun
        begun.delegate = self
        await begun.start()
        begun.didChange = { [weak self] in self?.say("* \(begun.items.count) documents") }
    }

    func run(_ line: String) async {
        let words = line.split(separator: " ", maxSplits: 1).map(String.init)
        let operand = words.count > 1 ? words[1] : ""
        do {
            say(try await run(words.first ?? "", operand) ? "done" : "failed")
        } catch {
            say("\((error as? CocoaError)?.code.rawValue ?? 0): \(error.localizedDescription)")
            say("failed")
        }
    }

    private func run(_ command: String, _ operand: String) async throws -> Bool {
        switch command {
        case "pick":
            // A program with a window shows its own dialog here. `TerminalPicker` asks in the
            // terminal and `DesktopPicker` with the desktop's dialog.
            let picker = DialogPicker { _ in operand.split(separator: ":").map { URL(fileURLWithPath: String($0), isDirectory: true) } }
            let picked = try await picker.pick(PickRequest(view: try ViewName("documents")))
            try await begin()
            return !picked.isEmpty
        case "list":
            for (number, item) in (browser?.items ?? []).enumerated() { say("\(number + 1) \(item.name), \(item.size) bytes") }
            for problem in (browser?.problems ?? [:]).values { say("not listed: \(problem)") }
            return browser != nil
        case "filter":
            browser?.filter = operand
            return true
        case "open":
            guard document == nil, let item = item(operand) else { return false }
            return await open(item.url)
        case "choose":
            guard let item = item(operand) else { return false }
            browser?.pick([item])
            return true
        case "make":
            nameToMake = operand
            browser?.requestDocumentCreation()
            return browser != nil
        case "import":
            guard let browser, let directory = try GrantedDirectory.all(in: try ViewName("documents")).first else { return false }
            let place = try await browser.importDocument(
                at: URL(fileURLWithPath: operand), nextToDocumentAt: directory.url, mode: .copy)
            say("imported as \(place.lastPathComponent)")
            return true
        case "reveal":
            guard let place = try await browser?.revealDocument(at: URL(fileURLWithPath: operand), importIfNeeded: false) else {
                return false
            }
            say("shown as \(place.lastPathComponent)")
            return true
        case "new":
            guard document == nil, let directory = try GrantedDirectory.all(in: try ViewName("documents")).first else { return false }
            document = await browser?.create(operand, in: directory) { TextDocument(fileURL: $0) }
            return document != nil
        case "type":
            document?.type(operand + "\n")
            return document != nil
        case "show":
            guard let document else { return false }
            say("\(document.localizedName): " + document.text.split(separator: "\n").joined(separator: " / "))
            say("state \(document.documentState.rawValue), unsaved \(document.hasUnsavedChanges)")
            return true
        case "save":
            guard let document else { return false }
            return await document.save(to: document.fileURL, for: .forOverwriting)
        case "close":
            guard await document?.close() == true else { return false }
            document = nil
            return true
        case "rename":
            let parts = operand.split(separator: " ", maxSplits: 1).map(String.init)
            guard parts.count == 2, let item = item(parts[0]) else { return false }
            try await browser?.rename(item, to: parts[1])
            return true
        case "delete":
            guard let item = item(operand) else { return false }
            try await browser?.delete(item)
            return true
        default: return false
        }
    }

    private func open(_ url: URL) async -> Bool {
        let opened = TextDocument(fileURL: url)
        opened.report = { [weak self] in self?.say("* \($0)") }
        let observer = NotificationCenter.default.addObserver(
            forName: UIDocument.stateChangedNotification, object: opened, queue: .main
        ) { [weak self] _ in
            MainActor.assumeIsolated {
                if opened.documentState.contains(.progressAvailable) { self?.say("* progress") }
            }
        }
        defer { NotificationCenter.default.removeObserver(observer) }
        guard await opened.open() else { return false }
        document = opened
        return true
    }

    // MARK: what the browser asks and tells

    func documentBrowser(
        _ controller: DocumentBrowser,
        didRequestDocumentCreationWithHandler importHandler: @escaping @Sendable (URL?, DocumentBrowser.ImportMode) -> Void
    ) {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString).appendingPathComponent(nameToMake)
        try? FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        let doc = TextDocument(fileURL: url)

        // Create a new document in a temporary location.
        doc.save(to: url, for: .forCreating) { (saveSuccess) in
            // Make sure the document saved successfully.
            guard saveSuccess else {
                // Cancel document creation.
                importHandler(nil, .none)
                return
            }

            // Close the document.
            doc.close(completionHandler: { (closeSuccess) in
                // Pass the document's temporary URL to the import handler.
                importHandler(closeSuccess ? url : nil, closeSuccess ? .move : .none)
            })
        }
    }

    func documentBrowser(_ controller: DocumentBrowser, didPickDocumentsAt documentURLs: [URL]) {
        guard let url = documentURLs.first else { return }
        Task { say(await open(url) ? "* opened \(url.lastPathComponent)" : "* not opened") }
    }

    func documentBrowser(_ controller: DocumentBrowser, didImportDocumentAt sourceURL: URL, toDestinationURL destinationURL: URL) {
        try? FileManager.default.removeItem(at: sourceURL.deletingLastPathComponent())
        say("* made \(destinationURL.lastPathComponent)")
    }

    func documentBrowser(_ controller: DocumentBrowser, failedToImportDocumentAt documentURL: URL, error: (any Error)?) {
        try? FileManager.default.removeItem(at: documentURL.deletingLastPathComponent())
        say("* not made: \(error.map { $0.localizedDescription } ?? "")")
    }

    private func item(_ number: String) -> DocumentBrowser.Item? {
        guard let items = browser?.items, let index = Int(number), items.indices.contains(index - 1) else { return nil }
        return items[index - 1]
    }

    func end() async {
        _ = await document?.close()
        browser?.stop()
    }
}

let (lines, input) = AsyncStream.makeStream(of: String.self)
// Reading a line blocks, and must not block any other thread.
Thread.detachNewThread {
    while let line = readLine() { input.yield(line) }
    input.finish()
}
let program = Program()
try? await program.begin()
for await line in lines { await program.run(line) }
await program.end()
