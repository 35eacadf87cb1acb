import GrantCoordinator
import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// A registered presenter, and the delivery of its messages.
///
/// Safe to share, even if the presenter is not: the presenter, and the blocks it passes on, are called only on its own queue. It is not
/// retained.
final class RegisteredPresenter: @unchecked Sendable {
    private weak var presenter: (any NSFilePresenter)?
    private let queue: OperationQueue
    let identity: ObjectIdentifier
    /// The purpose of its coordinators, which do not ask it.
    let purpose: String
    private let state: Lock<State>
    private let environment: GrantEnvironment

    private struct State {
        /// The form in which the presenter names its item. All paths here are the host's; they are converted for the presenter.
        var form: PathForm
        /// The item's path on the host.
        var path: [UInt8]
        var isDirectory: Bool
        /// The blocks that it passed on when it relinquished the item.
        var reacquirers: [@Sendable () -> Void] = []
        var isEnded = false
        /// The registration with the daemons of a store, if one of them leads to the item.
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
        let form = PathForm(of: path, in: environment)
        state = Lock(State(form: form, path: form.host(path), isDirectory: url.hasDirectoryPath))
    }

    var object: (any NSFilePresenter)? { presenter }
    var path: [UInt8] { state.withLock { $0.path } }

    /// Ends the delivery. Only calls already under way finish.
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

    /// Runs `body` on the queue; `orElse` if the presenter is gone.
    private func deliver(orElse: @escaping @Sendable () -> Void = {}, _ body: @escaping @Sendable (any NSFilePresenter) -> Void) {
        guard presenter != nil, !state.withLock({ $0.isEnded }) else { return orElse() }
        queue.addOperation { [self] in
            if let presenter { body(presenter) } else { orElse() }
        }
    }

    /// nil for what must not be named: a presenter of an item in a mount gets no URLs outside of it.
    private func url(_ path: [UInt8]) -> URL? {
        let (form, isDirectory) = state.withLock { ($0.form, $0.path == path && $0.isDirectory) }
        if form.isInMount, !form.holds(path) { return nil }
        return FilePath.url(form.named(path), isDirectory: isDirectory)
    }

    // MARK: The way into the mount

    /// Called before `path`, of the host, is used: a granted directory that was renamed holds it at a new place.
    private func refreshForm(for path: [UInt8]) {
        let form = state.withLock { $0.form }
        if form.isInMount, !form.holds(path) { renew() }
    }

    /// Looks up where the granted directory is now, and the grant's name. The item stays where it was in it; a presenter of an item in
    /// a mount is told if its URL changes.
    func renew() {
        let old = state.withLock { $0.form }
        guard old.isInMount else { return }
        let form = old.renewed(in: environment)
        let place = state.withLock { state -> [UInt8]? in
            guard form != old, state.form == old else { return nil }
            state.form = form
            if let below = FilePath.below(old.host, state.path) { state.path = FilePath.join(form.host, below) }
            return form.named == old.named ? nil : state.path
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
        refreshForm(for: path)
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
        refreshForm(for: path)
        if isAbove(path) {
            guard let old = url(path) else { return changed(self.path) }
            guard let new = url(newPath) else { return deliver { $0.presentedSubitemDidChange(at: old) } }
            return deliver { $0.presentedSubitem(at: old, didMoveTo: new) }
        }
        // The item itself was moved, or a directory above it.
        guard let below = FilePath.below(path, self.path) else { return }
        let (place, old) = (FilePath.join(newPath, below), url(self.path))
        refreshForm(for: place)
        state.withLock { $0.path = place }
        // In the mount it may be where it was, or nowhere: the presenter has to look.
        guard let new = url(place), new != old else { return deliver { $0.presentedItemDidChange() } }
        deliver { $0.presentedItemDidMove(to: new) }
    }

    func changed(_ path: [UInt8]) {
        refreshForm(for: path)
        let subitem = isAbove(path) ? url(path) : nil
        deliver { presenter in
            if let subitem { presenter.presentedSubitemDidChange(at: subitem) } else { presenter.presentedItemDidChange() }
        }
    }

    func appeared(_ path: [UInt8]) {
        refreshForm(for: path)
        guard let url = url(path) else { return }
        deliver { $0.presentedSubitemDidAppear(at: url) }
    }

    private func isAbove(_ path: [UInt8]) -> Bool { path != self.path && MountTable.path(path, isAtOrBelow: self.path) }

    /// Whether an access to `item` concerns it.
    func presents(_ item: ClaimedItem) -> Bool {
        guard let own = try? ClaimedItem(path: path) else { return false }
        return own.overlaps(item)
    }
}
