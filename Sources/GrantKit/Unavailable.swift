import Foundation

// Apple's names that GrantKit leaves out. They are declared so that the compiler says why, and what to use instead. The table in
// docs/GrantKit.md has the same sentences; `.ci/library` checks that the compiler says each.

// MARK: versions and iCloud

@available(*, unavailable, message: "no versions are kept here; `grantfs run --snapshot` and `grantfs diff` keep what a program changes")
public final class NSFileVersion {}

@available(
    *, unavailable,
    message:
        "there is no index of iCloud's here; FileManager.enumerator(at:) lists, and an NSFilePresenter of the directory is told what comes and goes"
)
public final class NSMetadataQuery {}

@available(*, unavailable, message: "there is no index of iCloud's here; URL.resourceValues(forKeys:) tells of a file")
public final class NSMetadataItem {}

extension FileManager {
    @available(*, unavailable, message: "there is no iCloud here: nobody is signed in")
    public var ubiquityIdentityToken: (any NSObjectProtocol)? { nil }

    @available(*, unavailable, message: "there is no iCloud here; GrantedDirectory.all(in:) lists the directories that a program may use")
    public func url(forUbiquityContainerIdentifier containerIdentifier: String?) -> URL? { nil }

    @available(*, unavailable, message: "there is no iCloud here: every file is where it is")
    public func isUbiquitousItem(at url: URL) -> Bool { false }

    @available(*, unavailable, message: "there is no iCloud here: every file is where it is")
    public func startDownloadingUbiquitousItem(at url: URL) throws {}

    @available(*, unavailable, message: "there is no iCloud here: every file is where it is")
    public func evictUbiquitousItem(at url: URL) throws {}

    @available(
        *, unavailable,
        message: "there is no iCloud here; move the file under NSFileCoordinator.coordinate(writingItemAt:options:error:byAccessor:)"
    )
    public func setUbiquitous(_ flag: Bool, itemAt url: URL, destinationURL: URL) throws {}

    @available(
        *, unavailable, message: "no file provider is known here; a source that a FUSE filesystem or NFS serves is granted as any directory"
    )
    public func getFileProviderServicesForItem(at url: URL, completionHandler: @escaping @Sendable ([String: Any]?, (any Error)?) -> Void) {
    }

    @available(
        *, unavailable,
        message: "a granted directory has no Trash of its own; `gio trash` moves a file to the desktop's, which takes it out of the grant"
    )
    public func trashItem(at url: URL, resultingItemURL: UnsafeMutablePointer<URL?>?) throws {}
}

extension URL {
    @available(*, unavailable, message: "no item is promised here; use resourceValues(forKeys:)")
    public func promisedItemResourceValues(forKeys keys: Set<URLResourceKey>) throws -> URLResourceValues { URLResourceValues() }

    @available(*, unavailable, message: "no item is promised here; use checkResourceIsReachable()")
    public func checkPromisedItemIsReachable() throws -> Bool { false }
}

// MARK: documents and pickers

@available(
    *, unavailable, message: "Foundation has none on Linux: call UIDocument.updateChangeCount(_:) when something was done, undone or redone"
)
public final class UndoManager {}

@available(*, unavailable, message: "Foundation has none on Linux: a document is a file, and its contents are Data")
public final class FileWrapper {}

@available(
    *, unavailable, renamed: "DirectoryPicker",
    message: "let a DirectoryPicker ask: in the terminal, through the desktop's file chooser, or a dialog of your own"
)
public final class UIDocumentPickerViewController {}

@available(*, unavailable, renamed: "DocumentBrowser", message: "a DocumentBrowser lists and watches documents; the window is yours")
public final class UIDocumentBrowserViewController {}

@available(
    *, unavailable, renamed: "DirectoryPicker",
    message: "let a DirectoryPicker ask: in the terminal, through the desktop's file chooser, or a dialog of your own"
)
public final class NSOpenPanel {}

@available(*, unavailable, renamed: "UIDocument", message: "UIDocument is here, and needs no window")
public final class NSDocument {}

// MARK: types

@available(*, unavailable, message: "no types of files are known here; go by URL.pathExtension")
public struct UTType {}

@available(*, unavailable, message: "no file provider is made here; grantfs shows directories of the host")
public final class NSFileProviderManager {}
