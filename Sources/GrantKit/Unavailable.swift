import Foundation

// Apple's names that GrantKit omits. They are declared so that the compiler says why, and what to
// use instead. The table in docs/GrantKit.md has the same sentences. `.ci/library` checks that the
// compiler says each.

// MARK: versions and iCloud

@available(*, unavailable, message: "no versions are kept here: see `grantfs run --snapshot` and `grantfs diff`")
open class NSFileVersion: NSObject {
    public class func unresolvedConflictVersionsOfItem(at url: URL) -> [NSFileVersion]? { nil }
    public class func currentVersionOfItem(at url: URL) -> NSFileVersion? { nil }
    public class func removeOtherVersionsOfItem(at url: URL) throws {}
}

@available(
    *, unavailable,
    message: "there is no index of iCloud here: use FileManager.enumerator(at:) and an NSFilePresenter of the directory"
)
open class NSMetadataQuery: NSObject {
    public override init() {}
}

@available(*, unavailable, message: "there is no index of iCloud here: use URL.resourceValues(forKeys:)")
open class NSMetadataItem: NSObject {
    public init?(url: URL) { nil }
}

extension FileManager {
    @available(*, unavailable, message: "there is no iCloud here, and no account")
    public var ubiquityIdentityToken: (any NSObjectProtocol)? { nil }

    @available(*, unavailable, message: "there is no iCloud here: GrantedDirectory.all(in:) lists a program's directories")
    public func url(forUbiquityContainerIdentifier containerIdentifier: String?) -> URL? { nil }

    @available(*, unavailable, message: "there is no iCloud here: every file is where it is")
    public func isUbiquitousItem(at url: URL) -> Bool { false }

    @available(*, unavailable, message: "there is no iCloud here: every file is where it is")
    public func startDownloadingUbiquitousItem(at url: URL) throws {}

    @available(*, unavailable, message: "there is no iCloud here: every file is where it is")
    public func evictUbiquitousItem(at url: URL) throws {}

    @available(
        *, unavailable,
        message: "there is no iCloud here: move the file under NSFileCoordinator.coordinate(writingItemAt:options:error:byAccessor:)"
    )
    public func setUbiquitous(_ flag: Bool, itemAt url: URL, destinationURL: URL) throws {}

    @available(
        *, unavailable, message: "there is no file provider here: a directory of FUSE or NFS is granted as any other"
    )
    public func getFileProviderServicesForItem(at url: URL, completionHandler: @escaping @Sendable ([String: Any]?, (any Error)?) -> Void) {
    }

    @available(
        *, unavailable,
        message: "a granted directory has no Trash: `gio trash` moves a file to the desktop's, outside the grant"
    )
    public func trashItem(at url: URL, resultingItemURL: UnsafeMutablePointer<URL?>?) throws {}
}

extension URL {
    @available(*, unavailable, message: "no item is promised here: use resourceValues(forKeys:)")
    public func promisedItemResourceValues(forKeys keys: Set<URLResourceKey>) throws -> URLResourceValues { URLResourceValues() }

    @available(*, unavailable, message: "no item is promised here: use checkResourceIsReachable()")
    public func checkPromisedItemIsReachable() throws -> Bool { false }
}

// MARK: documents and pickers

@available(
    *, unavailable, message: "Foundation has none on Linux: call UIDocument.updateChangeCount(_:) when something was done, undone or redone"
)
open class UndoManager: NSObject {
    public override init() {}
    open func registerUndo<Target: AnyObject>(withTarget target: Target, handler: @escaping (Target) -> Void) {}
    open func undo() {}
    open func redo() {}
    open func setActionName(_ actionName: String) {}
}

@available(*, unavailable, message: "Foundation has none on Linux: a document is a file, and its contents are Data")
open class FileWrapper: NSObject {
    public init(url: URL, options: Int = 0) throws {}
    public init(directoryWithFileWrappers childrenByPreferredName: [String: FileWrapper]) {}
    public init(regularFileWithContents contents: Data) {}
}

@available(
    *, unavailable,
    message: "let a DirectoryPicker ask: in the terminal, through the desktop's file chooser, or a dialog of your own"
)
open class UIDocumentPickerViewController: NSObject {
    public init(forOpeningContentTypes contentTypes: [UTType], asCopy: Bool = false) {}
    public init(forExporting urls: [URL], asCopy: Bool = false) {}
    public weak var delegate: (any UIDocumentPickerDelegate)?
    public var allowsMultipleSelection = false
    public var shouldShowFileExtensions = false
    public var directoryURL: URL?
}

@available(
    *, unavailable, renamed: "DirectoryPickerDelegate",
    message: "conform to DirectoryPickerDelegate, whose methods have the same names, and call a DirectoryPicker's pick(_:for:)"
)
public protocol UIDocumentPickerDelegate: AnyObject {}

@available(*, unavailable, message: "a DocumentBrowser lists and watches documents: the window is yours")
open class UIDocumentBrowserViewController: NSObject {
    public init(forOpening contentTypes: [UTType]?) {}
    public override init() {}
    public weak var delegate: (any UIDocumentBrowserViewControllerDelegate)?
    public var allowsDocumentCreation = false
    public var allowsPickingMultipleItems = false
    public enum ImportMode { case none, copy, move }
    open func revealDocument(
        at url: URL, importIfNeeded: Bool, completion: ((URL?, (any Error)?) -> Void)? = nil
    ) {}
}

@available(
    *, unavailable, renamed: "DocumentBrowserDelegate",
    message: "conform to DocumentBrowserDelegate, whose methods have the same names, and set a DocumentBrowser's delegate"
)
public protocol UIDocumentBrowserViewControllerDelegate: AnyObject {}

@available(
    *, unavailable, renamed: "DirectoryPicker",
    message: "let a DirectoryPicker ask: in the terminal, through the desktop's file chooser, or a dialog of your own"
)
open class NSOpenPanel: NSObject {
    public override init() {}
}

@available(*, unavailable, renamed: "UIDocument", message: "UIDocument is here, and needs no window")
open class NSDocument: NSObject {
    public override init() {}
}

// MARK: types

@available(*, unavailable, message: "no types of files are known here: use URL.pathExtension")
public struct UTType {
    public init?(_ identifier: String) { nil }
    public init?(filenameExtension: String) { nil }
    public static var folder: UTType { fatalError() }
    public static var text: UTType { fatalError() }
    public static var plainText: UTType { fatalError() }
}

@available(*, unavailable, message: "there is no file provider here: grantfs shows directories of the host")
open class NSFileProviderManager: NSObject {
    public override init() {}
}
