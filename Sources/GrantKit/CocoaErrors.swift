import Foundation
import GrantModel

extension CocoaError {
    /// The error of functions in Apple's shape: a code of NSCocoaErrorDomain, the URL or path, and under `NSUnderlyingErrorKey` the
    /// `GrantError` with details.
    ///
    /// | code | what happened |
    /// | --- | --- |
    /// | `fileReadNoPermission` | the grant is revoked, expired or removed, or there is none; the file's own permissions |
    /// | `fileReadNoSuchFile` (making), `fileNoSuchFile` (finding) | nothing there; the directory is missing, replaced, its volume away |
    /// | `fileReadCorruptFile` | no bookmark, a damaged or newer one, or one of another store |
    /// | `fileReadUnsupportedScheme` | not the URL of a file |
    /// | `featureUnsupported` | an option that nothing here can keep |
    /// | `fileReadUnknown` | the store cannot be read; several directories could be meant; anything else |
    init(_ error: GrantError, url: URL? = nil, isMaking: Bool = false) {
        var info = CocoaErrorText(error).userInfo(underlying: error)
        info[NSDebugDescriptionErrorKey] = error.description
        if let url {
            info[NSURLErrorKey] = url
            info[NSFilePathErrorKey] = url.path
        }
        self.init(CocoaError.code(error.code, isMaking: isMaking), userInfo: info)
    }

    private static func code(_ code: GrantError.Code, isMaking: Bool) -> CocoaError.Code {
        switch code {
        case .permission: .fileReadNoPermission
        case .notFound, .invalidDirectory: isMaking ? .fileReadNoSuchFile : .fileNoSuchFile
        case .invalidBookmark, .invalidFile: .fileReadCorruptFile
        case .usage: .fileReadUnsupportedScheme
        case .unsupported: .featureUnsupported
        case .alreadyExists: .fileWriteFileExists
        case .ambiguous, .storeUnavailable, .storeDamaged, .storeNewer, .storeFull, .mountFailed, .unconfirmed, .incomplete, .exhausted,
            .system:
            .fileReadUnknown
        }
    }
}
