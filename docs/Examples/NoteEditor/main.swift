// NoteEditor: runs commands line by line, and reports events.
//
//     open FILE · create FILE · type TEXT · save [SECONDS] · show · close
//
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

while let line = readLine() {
    let parts = line.split(separator: " ", maxSplits: 1).map(String.init)
    let operand = parts.count > 1 ? parts[1] : ""
    switch (parts.first, note) {
    case ("open", nil), ("create", nil):
        let opened = Note(URL(fileURLWithPath: operand)) { say("* \($0)") }
        if wait(parts[0] == "open" ? opened.open : opened.create) { note = opened }
    case ("type", let note?):
        note.type(operand + "\n")
        say("done")
    case ("save", let note?):
        if let seconds = Double(operand) { DispatchQueue.global().asyncAfter(deadline: .now() + seconds) { note.cancel() } }
        _ = wait(note.save)
    case ("show", let note?): say(note.text.split(separator: "\n").joined(separator: " / "))
    case ("close", let open?):
        open.close()
        note = nil
        say("done")
    default: say("failed: no such command, or no open note: \(line)")
    }
}
note?.close()
