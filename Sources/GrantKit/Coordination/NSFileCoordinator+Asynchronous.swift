import Foundation
import GrantAdministration
import GrantSystem

extension NSFileCoordinator {
    /// Claims the items of all intents at once, without blocking the caller, then runs the accessor on the queue. The claims end when
    /// it returns.
    ///
    /// The accessor gets nil, or the error if there is no claim; it runs once in either case. The wait has a thread of its own. In this
    /// form `forUploading` makes no copy, here and there.
    public func coordinate(
        with intents: [NSFileAccessIntent], queue: OperationQueue, byAccessor accessor: @escaping @Sendable ((any Error)?) -> Void
    ) {
        let environment = GrantEnvironment.current
        let coordinated = CoordinatedWork.alone()
        let work: @Sendable () -> Void = { [self] in
            GrantEnvironment.$current.withValue(environment) {
                do throws(CoordinationError) {
                    let claim = try claim(intents.map { ($0.url, $0.access) }, for: coordinated)
                    for (intent, path) in zip(intents, claim.paths) {
                        intent.url = FilePath.url(path, isDirectory: intent.url.hasDirectoryPath)
                    }
                    queue.addOperation {
                        GrantEnvironment.$current.withValue(environment) { coordinated.run { accessor(nil) } }
                        self.end(claim)
                    }
                } catch {
                    let failure = CocoaError.error(error, url: intents.first?.url, isWriting: intents.contains { $0.isWriting })
                    queue.addOperation { accessor(failure) }
                }
            }
        }
        do throws(Errno) {
            try WorkerThread.start("coordinate", work).detach()
        } catch {
            let failure = CocoaError.error(.failed(error.description), url: intents.first?.url, isWriting: false)
            queue.addOperation { accessor(failure) }
        }
    }
}
