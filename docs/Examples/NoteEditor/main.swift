// NoteEditor [RECENT]: runs commands line by line, and reports events.
//
//     open FILE · create FILE · recent · reopen N · type TEXT · save [SECONDS] · show · close
//
// RECENT is a file that keeps bookmarks of the notes, for later runs. `recent` lists the notes, and `reopen` counts them from 1.
// `save` gives up when other programs have the file for so many seconds. FILE is in a granted directory, in a mount of its view or on the host. A command prints one line,
// `done` or `failed: …`. Changes by other programs appear in lines that begin with `*`.
import Foundation
import GrantKit
import Synchronization

let output = Mutex(())

@Sendable func say(_ text: String) {
    output.withLock { _ in FileHandle.standardOutput.write(Data((text + "\n").utf8)) }
}

func words(for error: any Error) -> String {
    let underlying = (error as NSError).userInfo[NSUnderlyingErrorKey]
    return underlying.map { "\($0)" } ?? error.localizedDescription
}

/// Runs an operation that completes asynchronously, and waits for it.
func wait(_ begin: (@escaping @Sendable ((any Error)?) -> Void) -> Void) -> Bool {
    let ended = DispatchSemaphore(value: 0)
    let failure = Mutex<String?>(nil)
    begin { error in
        failure.withLock { $0 = error.map(words) }
        ended.signal()
    }
    ended.wait()
    let text = failure.withLock { $0 }
    say(text.map { "failed: \($0)" } ?? "done")
    return text == nil
}

var note: Note?
var recent = try CommandLine.arguments.dropFirst().first.map { try RecentNotes(file: URL(fileURLWithPath: $0)) }

/// Which of the recent notes is open.
var kept: Int?

@MainActor func begin(_ url: URL, isNew: Bool) {
    let opened = Note(url) { say("* \($0)") }
    guard wait(isNew ? opened.create : opened.open) else { return }
    (note, kept) = (opened, nil)
    keep(opened)
}

/// A save puts another file in the place of the note's, which only a new bookmark finds under another name.
@MainActor func keep(_ note: Note) {
    guard let url = note.presentedItemURL else { return }
    do { kept = try recent?.keep(url, at: kept) } catch { say("* not kept: \(words(for: error))") }
}

while let line = readLine() {
    let parts = line.split(separator: " ", maxSplits: 1).map(String.init)
    let operand = parts.count > 1 ? parts[1] : ""
    switch (parts.first, note) {
    case ("open", nil), ("create", nil): begin(URL(fileURLWithPath: operand), isNew: parts[0] == "create")
    case ("recent", _):
        say((recent?.urls ?? []).map { $0?.lastPathComponent ?? "not found" }.joined(separator: " / "))
    case ("reopen", nil):
        do {
            guard let url = try recent?.url(at: (Int(operand) ?? 0) - 1) else { throw CocoaError(.fileNoSuchFile) }
            begin(url, isNew: false)
        } catch {
            say("failed: \(words(for: error))")
        }
    case ("type", let note?):
        note.type(operand + "\n")
        say("done")
    case ("save", let note?):
        if let seconds = Double(operand) { DispatchQueue.global().asyncAfter(deadline: .now() + seconds) { note.cancel() } }
        if wait(note.save) { keep(note) }
    case ("show", let note?): say(note.text.split(separator: "\n").joined(separator: " / "))
    case ("close", let open?):
        open.close()
        note = nil
        say("done")
    default: say("failed: no such command, or no open note: \(line)")
    }
}
note?.close()
