import Coordinator
import Foundation
import GrantAdministration
import GrantModel
import LinuxFS

/// The presenters of this process.
///
/// Locking: one lock around the list, held for a look or a change of it and nothing else.
final class PresenterRegistry: Sendable {
    static let process = PresenterRegistry()
    /// How long an answer is waited for, in milliseconds, all in all.
    static let patience = 5000

    private let list = Lock<[RegisteredPresenter]>([])
    private static let unique = UUID().uuidString

    /// The same for all coordinators of a presenter, and for no others.
    static func purpose(of presenter: any NSFilePresenter) -> String {
        "presenter \(UInt(bitPattern: ObjectIdentifier(presenter).hashValue)) of \(unique)"
    }

    var all: [RegisteredPresenter] { list.withLock { $0 } }

    func add(_ presenter: any NSFilePresenter) {
        guard let registered = RegisteredPresenter(presenter) else { return }
        let isNew = list.withLock { list in
            if list.contains(where: { $0.identity == registered.identity && $0.object != nil }) { return false }
            list.removeAll { $0.object == nil }
            list.append(registered)
            return true
        }
        if isNew { registered.listen(in: .current) }
    }

    func remove(_ presenter: any NSFilePresenter) {
        let removed = list.withLock { list in
            let removed = list.filter { $0.identity == ObjectIdentifier(presenter) }
            list.removeAll { $0.identity == ObjectIdentifier(presenter) }
            return removed
        }
        for registered in removed { registered.end() }
    }

    /// Those whom no daemon asks, and whose business an access to the item is.
    private func asked(about item: ClaimedItem, but purpose: String?) -> [RegisteredPresenter] {
        all.filter { !$0.isHeardByDaemons && $0.purpose != purpose && $0.presents(item) }
    }

    /// Asks those presenters of this process whom no daemon asks to make way, and waits for their answers. Gives those who were asked.
    func makeWay(for accesses: [CoordinatedAccess], purpose: String?) -> [SteppedAside] {
        var result: [SteppedAside] = []
        let answered = Semaphore()
        var open = 0
        for access in accesses {
            guard let item = try? ClaimedItem(path: access.path, followsLink: access.followsLink) else { continue }
            for presenter in asked(about: item, but: purpose) {
                result.append(SteppedAside(presenter: presenter, access: access))
                presenter.relinquish(toWriter: access.kind == .writing) { answered.post() }
                open += 1
                if access.kind == .reading ? access.savesFirst : access.intent == .merging {
                    presenter.save { _ in answered.post() }
                    open += 1
                }
                if access.intent == .deleting {
                    presenter.accommodateDeletion(of: access.path) { _ in answered.post() }
                    open += 1
                }
            }
        }
        let deadline = Clock.deadline(seconds: Double(PresenterRegistry.patience) / 1000)
        while open > 0, answered.wait(until: deadline) { open -= 1 }
        return result
    }
}

/// A presenter that was asked to make way, by this process itself.
struct SteppedAside: Sendable {
    let presenter: RegisteredPresenter
    let access: CoordinatedAccess

    /// The access is over.
    func over() {
        presenter.reacquire()
        switch (access.kind, access.intent) {
        case (.writing, .content), (.writing, .merging), (.writing, .metadata), (.writing, .replacing): presenter.changed(access.path)
        case (.writing, .deleting), (.writing, .moving), (.writing, .uploading), (.reading, _): break
        }
    }
}

extension NSFileCoordinator {
    /// The presenter is asked and told from now on, until it is removed. It is not kept alive by it. One that presents nothing now is not registered.
    ///
    /// An item that is granted and mounted is presented to every process that uses the store. Any other to this process alone; so is one that is mounted only
    /// later.
    public static func addFilePresenter(_ filePresenter: any NSFilePresenter) { PresenterRegistry.process.add(filePresenter) }

    /// Nothing more comes to it, but what is on its queue already. Nothing happens when it is not registered.
    public static func removeFilePresenter(_ filePresenter: any NSFilePresenter) { PresenterRegistry.process.remove(filePresenter) }

    /// The presenters of this process that are registered.
    public static var filePresenters: [any NSFilePresenter] { PresenterRegistry.process.all.compactMap(\.object) }
}
