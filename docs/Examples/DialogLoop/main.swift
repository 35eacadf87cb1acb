// DialogLoop: asks for a directory and lists its documents, while the main thread runs GLib's main loop as in a program with GTK.
//
// The answer of its dialog is a line of the standard input, which the loop watches. An empty line closes the dialog and ends the program.
import Foundation
import GrantKit

func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }

/// A dialog, which is shown until an event of the loop brings the person's choice.
@MainActor final class Dialog {
    private var answer: CheckedContinuation<[URL], Never>?

    func show() async -> [URL] {
        await withCheckedContinuation { continuation in
            answer = continuation
            say("directory?")
        }
    }

    func close(_ choice: String) {
        answer?.resume(returning: choice.isEmpty ? [] : [URL(fileURLWithPath: choice, isDirectory: true)])
        answer = nil
    }
}

guard let glib = GLib() else {
    say("GLib is not installed")
    exit(77)
}
let loop = glib.makeLoop(nil, 0)
let dialog = Dialog()
/// How often the loop served the main actor.
var turns = 0

// The main actor's work runs in this loop from now on.
_ = glib.watch(
    MainLoop.descriptor, GLib.readable,
    { _, _, _ in
        MainActor.assumeIsolated {
            turns += 1
            MainLoop.runPending()
        }
        return GLib.goOn
    }, nil)
_ = glib.watch(
    0, GLib.readableOrEnded,
    { _, _, _ in
        let line = String(decoding: FileHandle.standardInput.availableData, as: UTF8.self)
        MainActor.assumeIsolated { dialog.close(line.trimmingCharacters(in: .newlines)) }
        return GLib.goOn
    }, nil)

Task { @MainActor in
    var browser: DocumentBrowser?
    do {
        let picker = DialogPicker { _ in await dialog.show() }
        while let directory = try await picker.pick(PickRequest(view: try ViewName("dialog"))).first {
            browser?.stop()
            let begun = DocumentBrowser([directory])
            begun.didChange = { say("documents: " + begun.items.map(\.name).joined(separator: " ")) }
            await begun.start()
            browser = begun
        }
    } catch {
        say("failed: \(error)")
    }
    browser?.stop()
    glib.quit(loop)
}
glib.run(loop)
say("served \(turns) times")
