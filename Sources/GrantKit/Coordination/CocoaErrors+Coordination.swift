import Foundation
import GrantAdministration

extension CocoaError {
    /// | code | why there was no claim |
    /// | --- | --- |
    /// | `userCancelled` | `cancel()` was called. |
    /// | `fileReadNoPermission`, `fileWriteNoPermission` | The grant is revoked or has expired, or a directory above may not be searched. |
    /// | `fileLocking` | The wait would deadlock (EDEADLK), or the time-out has passed (ETIMEDOUT). |
    /// | `fileReadNoSuchFile`, `fileNoSuchFile` | No grant leads to the item. |
    /// | `fileReadUnknown`, `fileWriteUnknown` | A daemon has ended, nothing is mounted, or another error occurred. |
    ///
    /// `NSUnderlyingErrorKey` has the `CoordinationError`.
    static func error(_ failure: CoordinationError, url: URL?, isWriting: Bool) -> NSError {
        var info = CocoaErrorText(failure).userInfo(underlying: failure)
        info[NSDebugDescriptionErrorKey] = failure.description
        if let url {
            info[NSURLErrorKey] = url
            info[NSFilePathErrorKey] = url.path
        }
        let code: CocoaError.Code =
            switch failure {
            case .cancelled: .userCancelled
            case .revoked: isWriting ? .fileWriteNoPermission : .fileReadNoPermission
            case .deadlock, .timedOut: .fileLocking
            case .outside: isWriting ? .fileNoSuchFile : .fileReadNoSuchFile
            case .noMount, .daemonDied, .failed: isWriting ? .fileWriteUnknown : .fileReadUnknown
            }
        return NSError(domain: NSCocoaErrorDomain, code: code.rawValue, userInfo: info)
    }
}
