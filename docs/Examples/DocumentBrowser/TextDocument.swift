import Foundation
import GrantKit

/// An open text.
final class TextDocument: UIDocument {
    private(set) var text = ""
    /// Receives descriptions of the document's events.
    var report: (String) -> Void = { _ in }

    override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }

    override func load(fromContents contents: Any, ofType typeName: String?) throws {
        guard let data = contents as? Data, let read = String(data: data, encoding: .utf8) else {
            throw CocoaError(.fileReadInapplicableStringEncoding, userInfo: [NSURLErrorKey: fileURL])
        }
        text = read
        report("read")
    }

    override func handleError(_ error: any Error, userInteractionPermitted: Bool) {
        report("failed: \((error as? CocoaError)?.code.rawValue ?? 0)")
    }

    override var autosaveDelay: Duration { .milliseconds(200) }

    func type(_ more: String) {
        text += more
        updateChangeCount(.done)
    }
}
