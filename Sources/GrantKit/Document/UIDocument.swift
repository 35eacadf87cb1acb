import Foundation
import GrantSystem

/// A document: a file that a program shows and changes, read and saved under coordination, saved by itself after changes, and looked after when others read, write, move or delete it.
///
/// A subclass says what the file means, in two methods:
///
/// ```swift
/// final class TextDocument: UIDocument {
///     var text = ""
///     override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
///     override func load(fromContents contents: Any, ofType typeName: String?) throws { text = String(decoding: contents as! Data, as: UTF8.self) }
/// }
/// ```
///
/// **Here.** Reading and saving wait until nobody who coordinates is in the way; a save puts a new file in the place of the old one, all of it or nothing. The document is a presenter of its file by itself: it saves before somebody
/// reads, writes nothing while somebody writes, reads again what others have written, and follows a move. When the grant is revoked a save fails with `fileWriteNoPermission`, the changes stay here, and the save is
/// tried again when it is restored and something is changed, or `autosave` is called.
///
/// **Differences.** Contents are `Data` (there is no `FileWrapper`); there is no `undoManager` on Linux, so changes are told with `updateChangeCount(_:)`. A change of others to a file with unsaved changes is a conflict: `documentState` says
/// `.inConflict`, nothing is saved by itself any more, and `save(to:for:)` (this one wins) or `revert(toContentsOf:)` (the other one wins) ends it. There, only iCloud makes conflicts. No app comes to the foreground or leaves it; a program that ends
/// calls `close`.
@MainActor open class UIDocument: NSObject {
    /// What a save is for.
    public enum SaveOperation: Int, Sendable {
        /// A new file, where there must be none.
        case forCreating
        /// The document's own.
        case forOverwriting
    }

    /// What has become of the contents.
    public enum ChangeKind: Int, Sendable { case done, undone, redone, cleared }

    /// How it is.
    public struct State: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        /// Open, and all is well.
        public static let normal: State = []
        /// Not opened yet, could not be read, or closed: its contents mean nothing.
        public static let closed = State(rawValue: 1 << 0)
        /// The file was changed by somebody else, and here.
        public static let inConflict = State(rawValue: 1 << 1)
        /// It could not be saved.
        public static let savingError = State(rawValue: 1 << 2)
        /// Not a moment for its user to change it: it is being read again, or somebody else writes.
        public static let editingDisabled = State(rawValue: 1 << 3)
        /// It is being read or saved, and `progress` says how far.
        public static let progressAvailable = State(rawValue: 1 << 4)
    }

    /// Posted, with the document, after each change of `documentState`.
    public nonisolated static let stateChangedNotification = Notification.Name("UIDocumentStateChangedNotification")

    let presentation: DocumentPresentation
    /// Changes told so far, and how many of them are in the file.
    var changes: Int64 = 0
    var savedChanges: Int64 = 0
    /// What the file was when it was last read or written here, to tell one's own changes from others'.
    var seen: DocumentVersion?
    var autosaving: Task<Void, Never>?
    var isSaving = false
    /// Who waits until nothing is read or saved.
    var waiting: [CheckedContinuation<Void, Never>] = []

    /// Of a file that is there, to be opened, or of one that `save(to:for: .forCreating)` makes. Nothing is read yet.
    public init(fileURL url: URL) {
        presentation = DocumentPresentation(url)
        super.init()
        presentation.document = self
    }

    // MARK: what it is

    /// Where it is: follows it when it is moved.
    public nonisolated var fileURL: URL { presentation.presentedItemURL ?? URL(fileURLWithPath: "/") }
    /// Its name for people, without the extension.
    open var localizedName: String { fileURL.deletingPathExtension().lastPathComponent }
    /// What its extension is; nil for none.
    open var fileType: String? { fileURL.pathExtension.isEmpty ? nil : fileURL.pathExtension }
    /// When the file was last written, as far as this document knows.
    public internal(set) var fileModificationDate: Date?
    /// How far reading or saving is; nil when neither goes on.
    public internal(set) var progress: Progress?

    public internal(set) var documentState: State = .closed {
        didSet {
            guard documentState != oldValue else { return }
            NotificationCenter.default.post(name: UIDocument.stateChangedNotification, object: self)
        }
    }

    /// Whether something was changed that is not in the file.
    open var hasUnsavedChanges: Bool { changes != savedChanges }

    /// Seconds after a change in which it is saved by itself.
    open var autosaveDelay: Duration { .seconds(3) }

    // MARK: for subclasses

    /// What is to be saved: `Data`. Called on the main actor, when something is to be saved.
    open func contents(forType typeName: String) throws -> Any { throw CocoaError(.featureUnsupported) }

    /// Takes what the file has: `Data`. Called on the main actor, when it was opened, reverted or changed by others.
    open func load(fromContents contents: Any, ofType typeName: String?) throws { throw CocoaError(.featureUnsupported) }

    /// Called when something could not be read or saved that nobody waits for: an automatic save, a change of others. There, a dialog is shown; here nothing is done but what an override does.
    open func handleError(_ error: any Error, userInteractionPermitted: Bool) {}

    /// Nothing is to be changed by its user until `enableEditing`. `documentState` says so as well.
    open func disableEditing() {}
    open func enableEditing() {}

    /// Called before what is saved by itself is saved. An override calls `super`, or the handler.
    open func autosave(completionHandler: (@Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isSaved = await autosave()
            completionHandler?(isSaved)
        }
    }

    // MARK: changes

    /// Something was changed, or all is as in the file (`.cleared`). It is saved by itself after `autosaveDelay`.
    open func updateChangeCount(_ change: ChangeKind) {
        if change == .cleared {
            savedChanges = changes
            return
        }
        changes &+= 1
        scheduleAutosave()
    }

    /// What was changed by now, to be handed to `updateChangeCount(withToken:for:)` once it is saved.
    open func changeCountToken(for saveOperation: SaveOperation) -> Any { changes }

    /// What was changed before the token was made is in the file.
    open func updateChangeCount(withToken changeCountToken: Any, for saveOperation: SaveOperation) {
        if let count = changeCountToken as? Int64 { savedChanges = max(savedChanges, min(count, changes)) }
    }
}
