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
    /// The accessor in which it was added.
    let work = CoordinatedWork.currentID
    private let state: Lock<State>
    private let environment: GrantEnvironment

    private struct State {
        /// The form in which the presenter names its item. All paths here are the host's. They are
        /// converted for the presenter.
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
        /// How many coordinated writers have its item, its own work included: their changes are told when they are done.
        var writers = 0
        /// What programs that do not coordinate have changed, on the host, and whether it is new.
        var changes: [[UInt8]: Bool] = [:]
    }

    /// Done when the presenter is registered with the daemons.
    private let settling = DispatchGroup()

    /// How long changes are collected before they are told: milliseconds.
    private static let collecting = 50
    /// So many changes at once are told as one of the whole item.
    private static let maxChanges = 100

    /// The result is nil for one that presents nothing.
    init?(_ presenter: any NSFilePresenter, in environment: GrantEnvironment) {
        guard let url = presenter.presentedItemURL, let path = try? FilePath.words(url) else { return nil }
        self.presenter = presenter
        queue = presenter.presentedItemOperationQueue
        identity = ObjectIdentifier(presenter)
        purpose = PresenterRegistry.purpose(of: presenter)
        self.environment = environment
        state = Lock(State(form: PathForm(plain: path), path: path, isDirectory: url.hasDirectoryPath))
        settling.enter()
    }

    /// Looks up the item's location, and registers with the daemons. It may wait for both.
    func settle() {
        let named = path
        let form = PathForm(of: named, in: environment)
        state.withLock { ($0.form, $0.path) = (form, form.host(named)) }
        listen(in: environment)
        watch()
        settling.leave()
    }

    /// Waits until `settle` is done, so many seconds at most. Returns whether it is.
    @discardableResult func isSettled(within seconds: Double) -> Bool { settling.wait(timeout: .now() + seconds) == .success }

    var object: (any NSFilePresenter)? { presenter }
    var path: [UInt8] { state.withLock { $0.path } }

    /// Ends the delivery. Only calls already under way finish.
    func end() {
        let presentation = state.withLock { state in
            defer { (state.isEnded, state.presentation) = (true, nil) }
            return state.presentation
        }
        presentation?.end()
        PlainChanges.process.forget(self)
    }

    func listens(by presentation: Presentation, in store: String) {
        let isEnded = state.withLock { state in
            if !state.isEnded { (state.presentation, state.store) = (presentation, store) }
            return state.isEnded
        }
        if isEnded { presentation.end() }
    }

    /// Whether the daemons of that store ask it.
    func listens(in store: String) -> Bool { state.withLock { $0.store == store && $0.presentation?.isPresenting == true } }

    /// Runs `body` on the queue, or `orElse` if the presenter is gone.
    private func deliver(orElse: @escaping @Sendable () -> Void = {}, _ body: @escaping @Sendable (any NSFilePresenter) -> Void) {
        guard presenter != nil, !state.withLock({ $0.isEnded }) else { return orElse() }
        queue.addOperation { [self] in
            if let presenter { body(presenter) } else { orElse() }
        }
    }

    /// Returns nil for a path that must not be named: a presenter of an item in a mount gets no
    /// URLs outside of it.
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

    /// Looks up where the granted directory is now, and the grant's name. The item keeps its path
    /// below that directory. A presenter of an item in a mount is told if its URL changes.
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
        watch()
        if let place, let url = url(place) { deliver { $0.presentedItemDidMove(to: url) } }
    }

    // MARK: Programs that do not coordinate

    /// Watches the item where it is named, and on the host.
    private func watch() {
        let (form, path, isEnded) = state.withLock { ($0.form, $0.path, $0.isEnded) }
        PlainChanges.process.watch(self, at: path, named: form.named(path))
        if isEnded { PlainChanges.process.forget(self) }
    }

    /// A coordinated writer, or the presenter's own work, begins.
    func beginWriting() { state.withLock { $0.writers += 1 } }

    /// It has ended. What it has changed is not a change by another program.
    func endWriting() {
        guard state.withLock({ $0.writers > 0 }) else { return }
        PlainChanges.process.takeNews()
        state.withLock { $0.writers -= 1 }
    }

    /// Counts the presenter as a writer, because it may write for its answer. The caller calls the
    /// result after the answer. Without an answer it ends with the time-out.
    private func beginAnswering() -> @Sendable () -> Void {
        beginWriting()
        let isOver = Lock(false)
        let end: @Sendable () -> Void = { [weak self] in
            let isFirst = isOver.withLock { isOver in
                defer { isOver = true }
                return !isOver
            }
            if isFirst { self?.endWriting() }
        }
        DispatchQueue.global().asyncAfter(deadline: .now() + environment.timeouts.presenter, execute: end)
        return end
    }

    /// A program has changed `path`, of the host.
    func note(_ path: [UInt8], isNew: Bool) {
        let isFirst = state.withLock { state in
            if state.isEnded || state.writers > 0 { return false }
            defer { state.changes[path] = state.changes[path] == true || isNew }
            return state.changes.isEmpty
        }
        guard isFirst else { return }
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(Self.collecting)) { [weak self] in self?.tellChanges() }
    }

    private func tellChanges() {
        let changes = state.withLock { state in
            defer { state.changes = [:] }
            return state.changes
        }
        if changes.count > Self.maxChanges { return changed(path) }
        for (path, isNew) in changes.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
            if isNew, isAbove(path), (try? BookmarkMaker.look(path)) != nil { appeared(path) } else { changed(path) }
        }
    }

    // MARK: Questions

    func relinquish(toWriter isWriter: Bool, _ done: @escaping @Sendable () -> Void) {
        // A writer has the item until `reacquire`.
        if isWriter { beginWriting() }
        let answered = isWriter ? nil : beginAnswering()
        deliver(orElse: done) { [self] presenter in
            let reply: @Sendable ((@Sendable () -> Void)?) -> Void = { [self] reacquirer in
                answered?()
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
        let answered = beginAnswering()
        deliver(orElse: { done(true) }) { presenter in
            presenter.savePresentedItemChanges { error in
                answered()
                done(error == nil)
            }
        }
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
        endWriting()
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
        watch()
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
        isSettled(within: environment.timeouts.presenter)
        guard let own = try? ClaimedItem(path: path) else { return false }
        return own.overlaps(item)
    }
}
