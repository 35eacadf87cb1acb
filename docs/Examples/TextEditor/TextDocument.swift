import Foundation
import GrantKit

/// A text in a file. The rest of a document is `UIDocument`'s: reading, saving, and getting along with other programs.
final class TextDocument: UIDocument {
    var text = ""
    /// Receives descriptions of errors and changes.
    var report: (String) -> Void = { _ in }

    override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }

    override func load(fromContents contents: Any, ofType typeName: String?) throws {
        guard let data = contents as? Data, let read = String(data: data, encoding: .utf8) else {
            throw CocoaError(.fileReadInapplicableStringEncoding, userInfo: [NSURLErrorKey: fileURL])
        }
        text = read
        report("read")
    }

    /// A program with a window shows an alert, with the error's recovery suggestion.
    override func handleError(_ error: any Error, userInteractionPermitted: Bool) {
        report("error \((error as? CocoaError)?.code.rawValue ?? 0): \(error.localizedDescription)")
    }

    override var autosaveDelay: Duration { .milliseconds(200) }

    func type(_ more: String) {
        text += more
        updateChangeCount(.done)
    }

    /// The names of the present states.
    var stateWords: String {
        let names: [(State, String)] = [
            (.closed, "closed"), (.inConflict, "in conflict"), (.savingError, "not saved"), (.editingDisabled, "editing disabled"),
            (.progressAvailable, "progress"),
        ]
        return documentState == .normal ? "normal" : names.filter { documentState.contains($0.0) }.map(\.1).joined(separator: ", ")
    }
}
