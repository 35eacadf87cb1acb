import Foundation
import GrantModel

extension CocoaError {
    /// The error of functions in Apple's shape: a code of NSCocoaErrorDomain, the URL or path, and under `NSUnderlyingErrorKey` the
    /// `GrantError` with details.
    ///
    /// | code | what happened |
    /// | --- | --- |
    /// | `fileReadNoPermission` | The grant is revoked, expired, removed or missing, or the file's own permissions deny it. |
    /// | `fileReadNoSuchFile` (making), `fileNoSuchFile` (finding) | The item or its directory is missing or replaced, or its volume is not mounted. |
    /// | `fileReadCorruptFile` | The data is not a bookmark, or is damaged, newer, or of another store. |
    /// | `fileReadUnsupportedScheme` | It is not the URL of a file. |
    /// | `featureUnsupported` | An option is not supported here. |
    /// | `fileReadUnknown` | The store cannot be read, several directories could be meant, or another error occurred. |
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
