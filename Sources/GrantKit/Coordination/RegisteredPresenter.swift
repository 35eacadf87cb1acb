import GrantCoordinator
import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// A presenter that is registered, and the messages to it.
///
/// Safe to share, though the presenter need not be: it is called on its own queue alone, as it asked for, and so is what it hands over to be called later.
/// It is not kept alive.
final class RegisteredPresenter: @unchecked Sendable {
    private weak var presenter: (any NSFilePresenter)?
    private let queue: OperationQueue
    let identity: ObjectIdentifier
    /// Of its coordinators, which do not ask it.
    let purpose: String
    private let state: Lock<State>
    private let environment: GrantEnvironment

    private struct State {
        /// How the presenter names its item. All paths here are of the host; it is told of them in its own terms.
        var terms: PathTerms
        /// Of the item, on the host.
        var path: [UInt8]
        var isDirectory: Bool
        /// What it handed over when it stepped aside.
        var reacquirers: [@Sendable () -> Void] = []
        var isEnded = false
        /// With the daemons of a store, if one of them leads to the item.
        var presentation: Presentation?
        var store: String?
    }

    /// nil for one that presents nothing.
    init?(_ presenter: any NSFilePresenter, in environment: GrantEnvironment) {
        guard let url = presenter.presentedItemURL, let path = try? FilePath.words(url) else { return nil }
        self.presenter = presenter
        queue = presenter.presentedItemOperationQueue
        identity = ObjectIdentifier(presenter)
        purpose = PresenterRegistry.purpose(of: presenter)
        self.environment = environment
        let terms = PathTerms(of: path, in: environment)
        state = Lock(State(terms: terms, path: terms.host(path), isDirectory: url.hasDirectoryPath))
    }

    var object: (any NSFilePresenter)? { presenter }
    var path: [UInt8] { state.withLock { $0.path } }

    /// Nothing is delivered from now on but what is under way.
    func end() {
        let presentation = state.withLock { state in
            defer { (state.isEnded, state.presentation) = (true, nil) }
            return state.presentation
        }
        presentation?.end()
    }

    func listens(by presentation: Presentation, in store: String) {
        state.withLock { ($0.presentation, $0.store) = (presentation, store) }
    }

    /// Whether the daemons of that store ask it.
    func listens(in store: String) -> Bool { state.withLock { $0.store == store && $0.presentation?.isPresenting == true } }

    /// Runs `body` on the queue; `orElse` when nobody is there to hear it.
    private func deliver(orElse: @escaping @Sendable () -> Void = {}, _ body: @escaping @Sendable (any NSFilePresenter) -> Void) {
        guard presenter != nil, !state.withLock({ $0.isEnded }) else { return orElse() }
        queue.addOperation { [self] in
            if let presenter { body(presenter) } else { orElse() }
        }
    }

    /// nil for what is not to be named: who presents what is in a mount is led to nothing outside of it.
    private func url(_ path: [UInt8]) -> URL? {
        let (terms, isDirectory) = state.withLock { ($0.terms, $0.path == path && $0.isDirectory) }
        if terms.isInMount, !terms.holds(path) { return nil }
        return FilePath.url(terms.named(path), isDirectory: isDirectory)
    }

    // MARK: The way into the mount

    /// Before `path`, of the host, is looked at: a granted directory that was renamed there holds it at its new place.
    private func keepUp(with path: [UInt8]) {
        let terms = state.withLock { $0.terms }
        if terms.isInMount, !terms.holds(path) { renew() }
    }

    /// Looks where the granted directory is now, and what the grant is called. The item is where it was in it; a presenter of what is in a mount is told when
    /// that has another URL.
    func renew() {
        let old = state.withLock { $0.terms }
        guard old.isInMount else { return }
        let terms = old.renewed(in: environment)
        let place = state.withLock { state -> [UInt8]? in
            guard terms != old, state.terms == old else { return nil }
            state.terms = terms
            if let below = FilePath.below(old.host, state.path) { state.path = FilePath.join(terms.host, below) }
            return terms.named == old.named ? nil : state.path
        }
        if let place, let url = url(place) { deliver { $0.presentedItemDidMove(to: url) } }
    }

    // MARK: What must be answered

    func relinquish(toWriter isWriter: Bool, _ done: @escaping @Sendable () -> Void) {
        deliver(orElse: done) { [self] presenter in
            let reply: @Sendable ((@Sendable () -> Void)?) -> Void = { [self] reacquirer in
                if let reacquirer { state.withLock { $0.reacquirers.append(reacquirer) } }
                done()
            }
            if isWriter {
                presenter.relinquishPresentedItem(toWriter: reply)
            } else {
                presenter.relinquishPresentedItem(toReader: reply)
            }
        }
    }

    /// `done` gets whether it worked.
    func save(_ done: @escaping @Sendable (Bool) -> Void) {
        deliver(orElse: { done(true) }) { $0.savePresentedItemChanges { done($0 == nil) } }
    }

    func accommodateDeletion(of path: [UInt8], _ done: @escaping @Sendable (Bool) -> Void) {
        keepUp(with: path)
        let subitem = isAbove(path) ? url(path) : nil
        deliver(orElse: { done(true) }) { presenter in
            if let url = subitem {
                presenter.accommodatePresentedSubitemDeletion(at: url) { done($0 == nil) }
            } else {
                presenter.accommodatePresentedItemDeletion { done($0 == nil) }
            }
        }
    }

    // MARK: What it is told

    func reacquire() {
        let reacquirers = state.withLock { state in
            defer { state.reacquirers = [] }
            return state.reacquirers
        }
        for reacquirer in reacquirers { queue.addOperation(reacquirer) }
    }

    func moved(_ path: [UInt8], to newPath: [UInt8]) {
        keepUp(with: path)
        if isAbove(path) {
            guard let old = url(path) else { return changed(self.path) }
            guard let new = url(newPath) else { return deliver { $0.presentedSubitemDidChange(at: old) } }
            return deliver { $0.presentedSubitem(at: old, didMoveTo: new) }
        }
        // What was moved is the item itself or a directory above it.
        guard let below = FilePath.below(path, self.path) else { return }
        let (place, old) = (FilePath.join(newPath, below), url(self.path))
        keepUp(with: place)
        state.withLock { $0.path = place }
        // In the mount it may be where it was, or nowhere: then it is looked at there.
        guard let new = url(place), new != old else { return deliver { $0.presentedItemDidChange() } }
        deliver { $0.presentedItemDidMove(to: new) }
    }

    func changed(_ path: [UInt8]) {
        keepUp(with: path)
        let subitem = isAbove(path) ? url(path) : nil
        deliver { presenter in
            if let subitem { presenter.presentedSubitemDidChange(at: subitem) } else { presenter.presentedItemDidChange() }
        }
    }

    func appeared(_ path: [UInt8]) {
        keepUp(with: path)
        guard let url = url(path) else { return }
        deliver { $0.presentedSubitemDidAppear(at: url) }
    }

    private func isAbove(_ path: [UInt8]) -> Bool { path != self.path && MountTable.path(path, isAtOrBelow: self.path) }

    /// Whether an access to `item` is its business.
    func presents(_ item: ClaimedItem) -> Bool {
        guard let own = try? ClaimedItem(path: path) else { return false }
        return own.overlaps(item)
    }
}
