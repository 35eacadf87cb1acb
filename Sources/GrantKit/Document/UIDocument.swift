import Foundation
import GrantSystem

/// A document: a file that a program shows and edits. It is read and saved under coordination, saved automatically after changes, and
/// handles reads, writes, moves and deletions by others.
///
/// A subclass defines the file's meaning in two methods:
///
/// ```swift
/// final class TextDocument: UIDocument {
///     var text = ""
///     override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
///     override func load(fromContents contents: Any, ofType typeName: String?) throws { text = String(decoding: contents as! Data, as: UTF8.self) }
/// }
/// ```
///
/// **Here.** Reading and saving wait for other claims. A save replaces the file atomically, and keeps its owner, mode, ACL and extended
/// attributes where permitted. A symbolic link is followed: its target is read, replaced and presented. The document is a presenter of
/// its file: it saves before others read, writes nothing while others write, reads their changes, and follows moves. When the grant is
/// revoked a save fails with `fileWriteNoPermission`, and the changes are kept. The save is tried again when the grant is restored and
/// something is changed, or `autosave` is called.
///
/// The document works on the main actor. A program whose main thread runs another loop than Foundation's serves it with `MainLoop`.
///
/// **Differences.** Contents are `Data` (there is no `FileWrapper`). There is no `undoManager` on
/// Linux, so changes are reported with `updateChangeCount(_:)`. If others change a file with
/// unsaved changes, that is a conflict: `documentState` contains `.inConflict` and autosave stops,
/// until `save(to:for:)` (this version wins) or `revert(toContentsOf:)` (the other one wins).
/// There, only iCloud causes conflicts. Apps do not enter or leave the foreground. A program that
/// ends calls `close`.
@MainActor open class UIDocument: NSObject {
    /// The purpose of a save.
    public enum SaveOperation: Int, Sendable {
        /// Saves for the first time. A file that exists is replaced, as there.
        case forCreating
        /// Overwrites the document's own file.
        case forOverwriting
    }

    /// A change of the contents.
    public enum ChangeKind: Int, Sendable { case done, undone, redone, cleared }

    /// The state of a document.
    public struct State: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        /// Open, without problems.
        public static let normal: State = []
        /// Not opened yet, unreadable, or closed: the contents are meaningless.
        public static let closed = State(rawValue: 1 << 0)
        /// The file was changed by others, and there are unsaved changes here.
        public static let inConflict = State(rawValue: 1 << 1)
        /// The last save failed.
        public static let savingError = State(rawValue: 1 << 2)
        /// The user should not edit now: it is being read again, or others write.
        public static let editingDisabled = State(rawValue: 1 << 3)
        /// A read or save is under way, with `progress`.
        public static let progressAvailable = State(rawValue: 1 << 4)
    }

    /// Posted with the document after each change of `documentState`.
    public nonisolated static let stateChangedNotification = Notification.Name("UIDocumentStateChangedNotification")

    let presentation: DocumentPresentation
    /// The number of reported changes, and how many of them are saved.
    var changes: Int64 = 0
    var savedChanges: Int64 = 0
    /// The version of the file at the last read or save, to distinguish own changes from others'.
    var seen: DocumentVersion?
    /// How often the file was deleted. A deletion can follow a claim before the document has ended its save.
    var deletions = 0
    var autosaving: Task<Void, Never>?
    var isSaving = false
    /// Callers that wait until no read or save is under way.
    var waiting: [CheckedContinuation<Void, Never>] = []

    /// For an existing file, to be opened, or one that `save(to:for: .forCreating)` creates. Nothing is read yet.
    public init(fileURL url: URL) {
        presentation = DocumentPresentation(url)
        super.init()
        presentation.document = self
    }

    // MARK: what it is

    /// The file's URL. It follows moves.
    public nonisolated var fileURL: URL { presentation.namedURL }
    /// The name for people, without the extension.
    open var localizedName: String { fileURL.deletingPathExtension().lastPathComponent }
    /// The file extension, or nil if there is none.
    open var fileType: String? { fileURL.pathExtension.isEmpty ? nil : fileURL.pathExtension }
    /// When the file was last written, as far as known.
    public internal(set) var fileModificationDate: Date?
    /// The progress of a read or save, or nil if there is none. Cancelling it ends the wait for other programs and the copy of the
    /// contents. The error is `userCancelled` then, and the changes are kept.
    public internal(set) var progress: Progress?

    public internal(set) var documentState: State = .closed {
        didSet { if documentState != oldValue { tellState() } }
    }

    /// Posts `stateChangedNotification`. Posting would wait for an observer with the main queue, so
    /// it is posted where that queue is the current one: in an asynchronous `main` the main actor
    /// runs on another thread.
    func tellState() {
        if OperationQueue.current === OperationQueue.main {
            NotificationCenter.default.post(name: UIDocument.stateChangedNotification, object: self)
        } else {
            OperationQueue.main.addOperation { [self] in
                NotificationCenter.default.post(name: UIDocument.stateChangedNotification, object: self)
            }
        }
    }

    /// Whether there are unsaved changes.
    open var hasUnsavedChanges: Bool { changes != savedChanges }

    /// How long after a change autosave runs.
    open var autosaveDelay: Duration { .seconds(3) }

    // MARK: for subclasses

    /// Returns the contents to be saved: `Data`. Called on the main actor.
    open func contents(forType typeName: String) throws -> Any { throw CocoaError(.featureUnsupported) }

    /// Sets the contents from the file: `Data`. Called on the main actor, after opening, reverting, or a change by others.
    open func load(fromContents contents: Any, ofType typeName: String?) throws { throw CocoaError(.featureUnsupported) }

    /// Called when a read or save fails that no caller waits for: an autosave, or after a change by
    /// others. There, a dialog is shown. Here, the default does nothing.
    open func handleError(_ error: any Error, userInteractionPermitted: Bool) {}

    /// Disables editing until `enableEditing`. `documentState` shows it as well.
    open func disableEditing() {}
    open func enableEditing() {}

    /// Reads the file or directory at the URL, not on the main actor. By default it reads a file,
    /// for `load(fromContents:ofType:)`. An override that does not call `super` keeps what it reads
    /// by itself. `load(fromContents:ofType:)` is not called then.
    nonisolated open func read(from url: URL) throws {
        let access = DocumentAccess.current
        let data = try DocumentFile.read(url, access.progress)
        access.state.withLock { $0.data = data }
    }

    /// Replaces the item at the URL atomically, not on the main actor. By default it has `writeContents(_:to:for:originalContentsURL:)`
    /// write beside it, and keeps the old one's owner, mode, ACL and extended attributes where permitted. `additionalFileAttributes` has
    /// no effect here.
    nonisolated open func writeContents(
        _ contents: Any, andAttributes additionalFileAttributes: [AnyHashable: Any]? = nil, safelyTo url: URL,
        for saveOperation: SaveOperation
    ) throws {
        let access = DocumentAccess.current
        try DocumentFile.replace(url, isNew: access.isNew) { place, isPrivate in
            access.state.withLock { $0.isPrivate = isPrivate }
            try writeContents(contents, to: place, for: saveOperation, originalContentsURL: isPrivate ? url : nil)
        }
    }

    /// Writes the contents to the URL, not on the main actor: usually a new file that is put in the place of the old one afterwards. By
    /// default they are `Data`. An override may make a directory instead.
    nonisolated open func writeContents(
        _ contents: Any, to url: URL, for saveOperation: SaveOperation, originalContentsURL: URL?
    ) throws {
        guard let data = contents as? Data else {
            throw CocoaError(
                .featureUnsupported, userInfo: [NSURLErrorKey: url, NSDebugDescriptionErrorKey: "contents(forType:) gave no Data"])
        }
        let access = DocumentAccess.current
        try DocumentFile.fill(url, data, isPrivate: access.state.withLock { $0.isPrivate }, access.progress)
    }

    /// Opens the document, then calls the handler with whether that worked. `open()` calls it, so an override applies to both.
    open func open(completionHandler: (@MainActor @Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isOpen = await performOpen()
            completionHandler?(isOpen)
        }
    }

    /// Saves to `url`, then calls the handler with whether that worked. `save(to:for:)` calls it, so an override applies to both.
    open func save(
        to url: URL, for operation: SaveOperation, completionHandler: (@MainActor @Sendable (Bool) -> Void)?
    ) {
        Task { @MainActor in
            let isSaved = await performSave(to: url, for: operation)
            completionHandler?(isSaved)
        }
    }

    /// Closes the document, then calls the handler with whether that worked. `close()` calls it, so an override applies to both.
    open func close(completionHandler: (@MainActor @Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isClosed = await performClose()
            completionHandler?(isClosed)
        }
    }

    /// Reverts the document, then calls the handler with whether that worked. `revert(toContentsOf:)` calls it, so an override applies to
    /// both.
    open func revert(toContentsOf url: URL, completionHandler: (@MainActor @Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isReverted = await performRevert(toContentsOf: url)
            completionHandler?(isReverted)
        }
    }

    /// Called before an autosave. An override calls `super`, or the handler.
    open func autosave(completionHandler: (@MainActor @Sendable (Bool) -> Void)?) {
        Task { @MainActor in
            let isSaved = await performAutosave()
            completionHandler?(isSaved)
        }
    }

    /// There is none here.
    @available(
        *, unavailable, message: "Foundation has no UndoManager on Linux: call updateChangeCount(_:) when something was done or undone"
    )
    public var undoManager: UndoManager? { nil }

    // MARK: changes

    /// Reports a change, or that everything is saved (`.cleared`). Autosave runs after `autosaveDelay`.
    open func updateChangeCount(_ change: ChangeKind) {
        if change == .cleared {
            savedChanges = changes
            return
        }
        changes &+= 1
        scheduleAutosave()
    }

    /// Returns a token of the changes so far, to be passed to `updateChangeCount(withToken:for:)` after saving.
    open func changeCountToken(for saveOperation: SaveOperation) -> Any { changes }

    /// Reports that the changes before the token are saved.
    open func updateChangeCount(withToken changeCountToken: Any, for saveOperation: SaveOperation) {
        if let count = changeCountToken as? Int64 { savedChanges = max(savedChanges, min(count, changes)) }
    }
}

/// What a read or save of a document has beside the parameters of the methods that a subclass may override.
final class DocumentAccess: Sendable {
    let progress = Progress(totalUnitCount: 1)
    /// Ends the wait for a claim when `progress` is cancelled.
    let cancellation = Cancellation()
    /// Whether nothing may exist where it is saved.
    let isNew: Bool
    let state = Lock<(data: Data?, isPrivate: Bool)>((nil, false))

    @TaskLocal private static var bound: DocumentAccess?

    init(isNew: Bool = false) {
        self.isNew = isNew
        progress.cancellationHandler = { [cancellation] in cancellation.cancel() }
    }

    /// The access of the current task, or a new one if a program calls such a method by itself.
    static var current: DocumentAccess { bound ?? DocumentAccess() }

    func run<Result>(_ body: () throws -> Result) rethrows -> Result { try DocumentAccess.$bound.withValue(self, operation: body) }
}
