import Foundation
import GrantModel
import GrantSystem

/// The documents in granted directories: listed, filtered, and kept in step with the disk. It is a model without a window, which is the
/// program's.
///
/// It lists each directory and everything in it under coordination, and is a presenter of it: what
/// others make, rename, change and delete shows within a moment. A directory whose grant is revoked
/// is empty, with the reason in `problems`. When it is restored its documents are back.
@MainActor public final class DocumentBrowser {
    /// A document: a file, or a directory that is one document.
    public struct Item: Identifiable, Hashable, Sendable {
        public let url: URL
        /// The grant of the directory that contains it.
        public let grant: GrantID
        /// The path below the granted directory, for people.
        public let name: String
        /// In bytes: that of its files, if it is a directory.
        public let size: Int
        /// The time of its last change, which may be in one of its files.
        public let modified: Date

        public var id: URL { url }
    }

    /// The documents that match the filter, by name.
    public private(set) var items: [Item] = []
    /// Why a grant's directory could not be listed.
    public private(set) var problems: [GrantID: String] = [:]
    /// Called after each change of `items` or `problems`.
    public var didChange: (@MainActor () -> Void)?
    /// Makes a thumbnail of a document. It is called only by the program's own list.
    public var thumbnail: (@MainActor (Item) async -> Data?)?
    /// A part of the names to show, ignoring case. An empty filter shows all.
    public var filter = "" { didSet { if filter != oldValue { show() } } }

    /// Told of picked, made and imported documents.
    public weak var delegate: (any DocumentBrowserDelegate)?

    let directories: [GrantedDirectory]
    let environment = GrantEnvironment.current
    let listing: DocumentListing
    private var presenters: [DirectoryPresentation] = []
    private var all: [Item] = []
    private var relisting: Task<Void, Never>?
    private var isStale = false

    /// Makes a browser of granted directories.
    ///
    /// - Parameters:
    ///   - directories: The directories to list.
    ///   - extensions: The file extensions of documents, in lower case. A directory with one of them is a document as a whole, and its
    ///     contents are not listed. If it is nil, every file that is not hidden is a document, and no directory is.
    public init(_ directories: [GrantedDirectory], extensions: Set<String>? = nil) {
        (self.directories, listing) = (directories, DocumentListing(extensions: extensions))
    }

    /// Lists the documents, and follows changes until `stop`.
    public func start() async {
        for directory in directories {
            let presenter = DirectoryPresentation(directory.url) { [weak self] in Task { @MainActor in self?.changed() } }
            NSFileCoordinator.addFilePresenter(presenter)
            presenters.append(presenter)
        }
        await list()
    }

    public func stop() {
        for presenter in presenters { NSFileCoordinator.removeFilePresenter(presenter) }
        presenters = []
        relisting?.cancel()
        (relisting, isStale) = (nil, false)
    }

    /// Creates a document and opens it. An existing file is not replaced.
    ///
    /// - Returns: The document, or nil if that failed, after calling `handleError`.
    public func create<Document: UIDocument>(_ name: String, in directory: GrantedDirectory, as make: (URL) -> Document) async -> Document?
    {
        let document = make(directory.url.appendingPathComponent(name))
        guard await document.performSave(to: document.fileURL, for: .forCreating, isNew: true) else { return nil }
        changed()
        return document
    }

    /// Renames a document within its directory. Presenters are told.
    ///
    /// - Throws: A `CocoaError`.
    public func rename(_ item: Item, to name: String) async throws {
        let new = item.url.deletingLastPathComponent().appendingPathComponent(name)
        try await Self.coordinated([.writingIntent(with: item.url, options: .forMoving), .writingIntent(with: new)]) { old, new in
            try FileManager.default.moveItem(at: old, to: new)
        }
        changed()
    }

    /// Deletes a document. Presenters are asked to close it first.
    ///
    /// - Throws: A `CocoaError`.
    public func delete(_ item: Item) async throws {
        try await Self.coordinated([.writingIntent(with: item.url, options: .forDeleting)]) { place, _ in
            try FileManager.default.removeItem(at: place)
        }
        changed()
    }

    /// Runs `work` with the present URLs of the first and the last item, while all are claimed. Presenters are told of a move from one to
    /// the other. The wait ends with the task.
    static func coordinated(
        _ intents: [NSFileAccessIntent], isMove: Bool = true, _ work: @escaping @Sendable (URL, URL) throws -> Void
    ) async throws {
        let coordinator = NSFileCoordinator()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                coordinator.coordinate(with: intents, queue: OperationQueue()) { error in
                    do {
                        if let error { throw error }
                        try work(intents[0].url, intents[intents.count - 1].url)
                        if isMove, intents.count > 1 { coordinator.item(at: intents[0].url, didMoveTo: intents[1].url) }
                        continuation.resume()
                    } catch {
                        continuation.resume(throwing: error)
                    }
                }
            }
        } onCancel: {
            coordinator.cancel()
        }
    }

    /// Many changes cause one listing, a tenth of a second later.
    func changed() {
        guard relisting == nil else { return isStale = true }
        relisting = Task { @MainActor [weak self] in
            try? await Task.sleep(for: .milliseconds(100))
            guard let self, !Task.isCancelled else { return }
            await GrantEnvironment.$current.withValue(environment) { await self.list() }
            relisting = nil
            if isStale {
                isStale = false
                changed()
            }
        }
    }

    func list() async {
        var (found, troubles): ([Item], [GrantID: String]) = ([], [:])
        for directory in directories {
            let (id, listing) = (directory.id, listing)
            do {
                found += try await CoordinatedFiles.read(directory.url, options: .withoutChanges) { place in
                    try listing.items(in: place, of: id)
                }.get()
            } catch {
                troubles[id] = ((error as? CocoaError)?.userInfo[NSUnderlyingErrorKey]).map { "\($0)" } ?? "\(error)"
            }
        }
        (all, problems) = (found.sorted { ($0.name, $0.url.path) < ($1.name, $1.url.path) }, troubles)
        show()
    }

    private func show() {
        items = filter.isEmpty ? all : all.filter { $0.name.range(of: filter, options: .caseInsensitive) != nil }
        didChange?()
    }
}

/// A presenter of everything in a directory.
private final class DirectoryPresentation: NSObject, NSFilePresenter, @unchecked Sendable {
    // Safe to share: only `url` changes after `init`, and it has a lock.
    let presentedItemOperationQueue = OperationQueue()
    private let url: Lock<URL>
    private let changed: @Sendable () -> Void

    init(_ url: URL, changed: @escaping @Sendable () -> Void) {
        (self.url, self.changed) = (Lock(url), changed)
        super.init()
        presentedItemOperationQueue.maxConcurrentOperationCount = 1
    }

    var presentedItemURL: URL? { url.withLock { $0 } }
    func presentedItemDidMove(to newURL: URL) {
        url.withLock { $0 = newURL }
        changed()
    }
    func presentedItemDidChange() { changed() }
    func presentedSubitemDidAppear(at url: URL) { changed() }
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) { changed() }
    func presentedSubitemDidChange(at url: URL) { changed() }
}
