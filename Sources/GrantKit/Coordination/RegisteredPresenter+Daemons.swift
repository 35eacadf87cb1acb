import GrantAdministration
import GrantModel
import GrantSystem

// Presenters that the daemons of mounts ask and notify, for the claims of all processes.
extension RegisteredPresenter {
    /// Registers with the daemons of the mounts that lead to the item. If there are none, only this process asks the presenter.
    func listen(in environment: GrantEnvironment) {
        guard let administrator = try? environment.administrator() else { return }
        // The thread that calls these serves other presenters too. What a presenter is told may
        // wait for a filesystem.
        let news = SerialWork()
        let presentation = try? Presentation(
            path, in: FileCoordination(administrator), purpose: purpose, timeout: environment.timeouts.presenter,
            onRequest: { [weak self] request in
                news.add { [weak self] in if let self { self.answer(request) } else { request.answer() } }
            },
            onNotice: { [weak self] notice in news.add { [weak self] in self?.handle(notice) } },
            onStoreChange: { [weak self] in news.add { [weak self] in self?.renew() } })
        if let presentation { listens(by: presentation, in: administrator.store.directory) }
    }

    private func answer(_ request: PresenterRequest) {
        switch request.question {
        case .relinquishToReader: relinquish(toWriter: false) { request.answer() }
        case .relinquishToWriter: relinquish(toWriter: true) { request.answer() }
        case .save: save { request.answer($0) }
        case .accommodateDeletion: accommodateDeletion(of: request.path) { request.answer($0) }
        // A presenter has no notion of grants. It is asked to save as well.
        case .revocation: request.answer()
        }
    }

    private func handle(_ notice: PresenterNotice) {
        switch notice {
        case .reacquired: reacquire()
        case .moved(let place): moved(path, to: place)
        case .changed, .missed, .restored: changed(path)
        case .subitemAppeared(let item): appeared(item)
        case .subitemChanged(let item), .subitemRemoved(let item): changed(item)
        case .subitemMoved(let item, let place): moved(item, to: place)
        case .released, .lostDaemon: endWriting()
        }
    }
}
