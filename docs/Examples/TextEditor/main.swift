// TextEditor: edits a text document, in the terminal.
//
//     open FILE · new FILE · type TEXT · show · save [FILE] · revert · cancel · close
//
// A change is saved by itself. `save` and `revert` also decide a conflict with another program. `cancel` ends a command that waits or
// reads. The output of a command ends with a line `done` or `failed`. The document's errors and states appear in lines that begin with `*`.
import Foundation
import GrantKit

@MainActor final class Editor {
    private var document: TextDocument?
    private var observer: (any NSObjectProtocol)?

    private func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }

    func run(_ line: String) async {
        let words = line.split(separator: " ", maxSplits: 1).map(String.init)
        say(await run(words.first ?? "", words.count > 1 ? words[1] : "") ? "done" : "failed")
    }

    private func run(_ command: String, _ operand: String) async -> Bool {
        switch (command, document) {
        case ("open", nil):
            let opened = make(operand)
            return keep(opened, await opened.open())
        case ("new", nil):
            let new = make(operand)
            return keep(new, await new.save(to: new.fileURL, for: .forCreating))
        case ("type", let document?):
            document.type(operand + "\n")
            return true
        case ("show", let document?):
            say("\(document.localizedName): " + document.text.split(separator: "\n").joined(separator: " / "))
            say("\(document.stateWords), \(document.hasUnsavedChanges ? "unsaved" : "saved")")
            return true
        case ("save", let document?):
            if operand.isEmpty { return await document.save(to: document.fileURL, for: .forOverwriting) }
            return await document.save(to: URL(fileURLWithPath: operand), for: .forCreating)
        case ("revert", let document?):
            return await document.revert(toContentsOf: document.fileURL)
        case ("close", let document?):
            guard await document.close() else { return false }
            forget()
            return true
        default: return false
        }
    }

    /// Cancels the progress of the document, which a program with a window shows beside a button.
    func cancel() { (document ?? opening)?.progress?.cancel() }

    /// The document that is being opened.
    private weak var opening: TextDocument?

    private func make(_ path: String) -> TextDocument {
        let document = TextDocument(fileURL: URL(fileURLWithPath: path))
        document.report = { [weak self] in self?.say("* \($0)") }
        observer = NotificationCenter.default.addObserver(
            forName: UIDocument.stateChangedNotification, object: document, queue: .main
        ) { [weak self, weak document] _ in
            MainActor.assumeIsolated { self?.say("* \(document?.stateWords ?? "")") }
        }
        opening = document
        return document
    }

    private func keep(_ made: TextDocument, _ isOpen: Bool) -> Bool {
        if isOpen { document = made } else { forget() }
        return isOpen
    }

    private func forget() {
        document = nil
        if let observer { NotificationCenter.default.removeObserver(observer) }
    }

    /// Returns whether everything is saved.
    func end() async -> Bool { await document?.close() ?? true }
}

let editor = Editor()
let (lines, input) = AsyncStream.makeStream(of: String.self)
// Reading a line blocks, and must not block any other thread.
Thread.detachNewThread {
    while let line = readLine() {
        // It is about the command that runs.
        if line == "cancel" { Task { @MainActor in editor.cancel() } } else { input.yield(line) }
    }
    input.finish()
}
for await line in lines { await editor.run(line) }
exit(await editor.end() ? 0 : 1)
