import Foundation
import GrantAdministration
import GrantSystem

extension NSFileCoordinator {
    /// Claims the items of all intents at once, without blocking the caller, then runs the accessor on the queue. The claims end when
    /// it returns.
    ///
    /// The accessor gets nil, or the error if there is no claim. It runs once in either case. The
    /// wait occupies no thread. This form makes no copy for `forUploading`, here and there.
    public func coordinate(
        with intents: [NSFileAccessIntent], queue: OperationQueue, byAccessor accessor: @escaping @Sendable ((any Error)?) -> Void
    ) {
        let environment = GrantEnvironment.current
        let coordinated = CoordinatedWork.alone()
        let fail: @Sendable (CoordinationError) -> Void = { error in
            let failure = CocoaError.error(error, url: intents.first?.url, isWriting: intents.contains { $0.isWriting })
            queue.addOperation { GrantEnvironment.$current.withValue(environment) { accessor(failure) } }
        }
        take(intents.map { ($0.url, $0.access) }, for: coordinated) { [self] result in
            switch result {
            case .failure(let error): fail(error)
            case .success(let claim):
                for (intent, path) in zip(intents, claim.paths) {
                    intent.url = FilePath.url(path, isDirectory: intent.url.hasDirectoryPath)
                }
                queue.addOperation {
                    GrantEnvironment.$current.withValue(environment) { coordinated.run { accessor(nil) } }
                    self.end(claim)
                }
            }
        }
    }
}
