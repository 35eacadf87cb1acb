import GrantCoordinator
import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// The presenters of this process.
///
/// Locking: one lock around the list, held for an access.
final class PresenterRegistry: Sendable {
    static let process = PresenterRegistry()
    private let list = Lock<[RegisteredPresenter]>([])
    private static let unique = UUID().uuidString

    /// Returns the purpose of a presenter's coordinators, and of no others.
    static func purpose(of presenter: any NSFilePresenter) -> String {
        "presenter \(UInt(bitPattern: ObjectIdentifier(presenter).hashValue)) of \(unique)"
    }

    var all: [RegisteredPresenter] { list.withLock { $0 } }

    func add(_ presenter: any NSFilePresenter) {
        let identity = ObjectIdentifier(presenter)
        if list.withLock({ $0.contains { $0.identity == identity && $0.object != nil } }) { return }
        guard let registered = RegisteredPresenter(presenter, in: .current) else { return }
        let (isNew, gone) = list.withLock { list in
            let gone = list.filter { $0.object == nil }
            list.removeAll { $0.object == nil }
            if list.contains(where: { $0.identity == registered.identity }) { return (false, gone) }
            list.append(registered)
            return (true, gone)
        }
        for old in gone { old.end() }
        guard isNew else { return registered.end() }
        // Without a thread it is looked up here.
        if (try? WaitingThreads.process.run({ registered.settle() })) == nil { registered.settle() }
    }

    /// Waits until the presenters that were added in an accessor, or all, are registered with the daemons, so many seconds at most.
    func settle(addedIn work: ClaimantID? = nil, within seconds: Double) {
        let deadline = Clock.deadline(seconds: seconds)
        for presenter in all where work == nil || presenter.work == work {
            presenter.isSettled(within: max(0, Double(deadline - Clock.monotonic) / 1e9))
        }
    }

    /// The presenters whose own work has this purpose.
    func presenters(of purpose: String?) -> [RegisteredPresenter] { purpose.map { purpose in all.filter { $0.purpose == purpose } } ?? [] }

    func remove(_ presenter: any NSFilePresenter) {
        let removed = list.withLock { list in
            let removed = list.filter { $0.identity == ObjectIdentifier(presenter) }
            list.removeAll { $0.identity == ObjectIdentifier(presenter) }
            return removed
        }
        for registered in removed { registered.end() }
    }

    /// Asks the presenters of the items to relinquish them, except those of `purpose`, and waits `timeout` seconds for their answers.
    /// `places` are the items' paths on the host. `store`: presenters that listen to its daemons were asked already and are skipped.
    /// Returns those asked, whether or not they answered in time.
    func askToRelinquish(
        for accesses: [CoordinatedAccess], at places: [[UInt8]], purpose: String?, askedBy store: String?, timeout: Double
    ) -> [RelinquishedPresenter] {
        let others = all.filter { presenter in
            guard presenter.purpose != purpose else { return false }
            presenter.isSettled(within: timeout)
            return !(store.map { presenter.listens(in: $0) } ?? false)
        }
        if others.isEmpty { return [] }
        var result: [RelinquishedPresenter] = []
        var answers: [Answer] = []
        let answered = Semaphore()
        let answer = {
            answers.append(Answer(answered))
            return answers[answers.count - 1]
        }
        for (access, place) in zip(accesses, places) {
            guard let item = try? ClaimedItem(path: place) else { continue }
            for presenter in others where presenter.presents(item) {
                result.append(RelinquishedPresenter(presenter: presenter, access: access, place: place))
                let stepped = answer()
                presenter.relinquish(toWriter: access.kind == .writing) { stepped.give() }
                if access.kind == .reading ? access.savesFirst : access.intent == .merging {
                    let saved = answer()
                    presenter.save { _ in saved.give() }
                }
                if access.intent == .deleting {
                    let closed = answer()
                    presenter.accommodateDeletion(of: place) { _ in closed.give() }
                }
            }
        }
        let deadline = Clock.deadline(seconds: timeout)
        for _ in answers where !answered.wait(until: deadline) { break }
        return result
    }

    /// An answer that counts once, however often it is given.
    private final class Answer: Sendable {
        private let isGiven = Lock(false)
        private let answered: GrantSystem.Semaphore
        init(_ answered: GrantSystem.Semaphore) { self.answered = answered }

        func give() {
            let isFirst = isGiven.withLock { isGiven in
                defer { isGiven = true }
                return !isGiven
            }
            if isFirst { answered.post() }
        }
    }
}

/// A presenter that this process has asked to relinquish an item.
struct RelinquishedPresenter: Sendable {
    let presenter: RegisteredPresenter
    let access: CoordinatedAccess
    /// The item's path on the host.
    let place: [UInt8]

    /// The access has ended.
    func over() {
        presenter.reacquire()
        switch (access.kind, access.intent) {
        case (.writing, .content), (.writing, .merging), (.writing, .metadata), (.writing, .replacing): presenter.changed(place)
        case (.writing, .deleting), (.writing, .moving), (.writing, .uploading), (.reading, _): break
        }
    }
}

extension NSFileCoordinator {
    /// The presenter is asked and told from now on, until it is removed. It is not kept alive by it. One that presents nothing now is not
    /// registered.
    ///
    /// Where a mount of the store leads to the item, the presenter gets the accesses of all
    /// processes, and claims by commands. Otherwise it gets those of this process. Register again
    /// after the presented item was granted or mounted for the first time.
    ///
    /// The call does not wait for the mounts. A presenter that is added in an accessor is registered when the claim ends, so it misses
    /// no change. Until then other processes may read without asking it to save: change nothing before the claim has ended.
    public static func addFilePresenter(_ filePresenter: any NSFilePresenter) { PresenterRegistry.process.add(filePresenter) }

    /// It receives nothing more than its queue already holds. Nothing happens when it is not registered.
    public static func removeFilePresenter(_ filePresenter: any NSFilePresenter) { PresenterRegistry.process.remove(filePresenter) }

    /// The presenters of this process that are registered.
    public static var filePresenters: [any NSFilePresenter] { PresenterRegistry.process.all.compactMap(\.object) }
}
