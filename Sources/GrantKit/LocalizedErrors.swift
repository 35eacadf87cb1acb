import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// The sentences of an error for a program's window. They name no command.
struct CocoaErrorText {
    let description: String
    let reason: String
    let suggestion: String

    init(_ error: GrantError) {
        description = CocoaErrorText.sentence(error.message) ?? CocoaErrorText.general(error.code)
        reason = error.cause.flatMap(CocoaErrorText.sentence) ?? CocoaErrorText.general(error.code)
        suggestion = CocoaErrorText.suggestion(error.code)
    }

    init(_ error: CoordinationError) {
        let shown = error.grantError
        description = CocoaErrorText.sentence(shown.message) ?? CocoaErrorText.general(shown.code)
        (reason, suggestion) =
            switch error {
            case .outside: ("It is not in a granted directory.", "Choose the directory that contains it.")
            case .revoked:
                ("Access to its directory was withdrawn, or has expired.", "Choose the directory again, or ask for access.")
            case .noMount: ("No granted directory is shown at present.", "Try again later.")
            case .deadlock: ("This program uses the item already, and would wait for itself.", "Finish the other work, then try again.")
            case .timedOut: ("Another program is using it.", "Close it in the other program, or try again later.")
            case .cancelled: ("The operation was cancelled.", "Try again.")
            case .daemonDied: ("The service that shows the directory has ended.", "Try again in a moment.")
            case .failed(let text):
                (CocoaErrorText.sentence(text) ?? CocoaErrorText.general(.system), CocoaErrorText.suggestion(.system))
            }
    }

    /// For a failed system call on a file.
    init(_ error: Errno, url: URL, isWriting: Bool) {
        description = "“\(url.lastPathComponent)” could not be \(isWriting ? "saved" : "read")."
        reason = CocoaErrorText.sentence(error.description) ?? CocoaErrorText.general(.system)
        suggestion =
            switch error.rawValue {
            case EACCES, EPERM: isWriting ? "Save it in another directory, or ask for access." : "Ask for access to it."
            case ENOENT, ENOTDIR: "Check whether it was moved or deleted, or whether its volume is connected."
            case EEXIST: "Choose another name."
            case EROFS: "Save it in another directory."
            case ENOSPC, EDQUOT: "Free some space, then try again."
            default: "Try again."
            }
    }

    func userInfo(underlying: any Error) -> [String: Any] {
        [
            NSUnderlyingErrorKey: underlying, NSLocalizedDescriptionKey: description, NSLocalizedFailureReasonErrorKey: reason,
            NSLocalizedRecoverySuggestionErrorKey: suggestion,
        ]
    }

    /// Makes a sentence of words for people, or nil for those that name a command or an option.
    private static func sentence(_ words: String) -> String? {
        guard !words.isEmpty, !words.contains("grantfs "), !words.contains("--") else { return nil }
        let first = words.prefix(1).uppercased() + words.dropFirst()
        return first.hasSuffix(".") ? first : first + "."
    }

    private static func general(_ code: GrantError.Code) -> String {
        switch code {
        case .usage: "The name or place cannot be used."
        case .notFound: "It does not exist."
        case .ambiguous: "Several directories could be meant."
        case .alreadyExists: "The name is taken."
        case .invalidDirectory: "The directory cannot be granted."
        case .invalidBookmark: "The reference to the directory cannot be used."
        case .invalidFile: "A file of settings cannot be read."
        case .permission: "Access is not permitted."
        case .storeUnavailable: "The record of granted directories is not available."
        case .storeDamaged: "The record of granted directories is damaged."
        case .storeNewer: "The record of granted directories was written by a newer version."
        case .storeFull: "There is no space left for the record of granted directories."
        case .mountFailed: "The directory cannot be shown."
        case .unsupported: "This is not supported here."
        case .exhausted: "Too many files or too much memory are in use."
        case .unconfirmed: "The change is recorded, and not yet confirmed everywhere."
        case .system: "The system refused the operation."
        case .incomplete: "Only a part was done."
        }
    }

    private static func suggestion(_ code: GrantError.Code) -> String {
        switch code {
        case .usage: "Choose another name or place."
        case .notFound: "Check whether it was moved or deleted, or whether its volume is connected."
        case .ambiguous, .invalidBookmark: "Choose the directory again."
        case .alreadyExists: "Choose another name."
        case .invalidDirectory: "Choose another directory."
        case .invalidFile, .storeDamaged: "Ask your administrator for help."
        case .permission: "Choose the directory again, or ask for access."
        case .storeUnavailable: "Check whether your home directory is available, then try again."
        case .storeNewer: "Update this program."
        case .storeFull: "Free some space, then try again."
        case .mountFailed, .unconfirmed, .system, .incomplete: "Try again in a moment."
        case .unsupported: "Choose another way."
        case .exhausted: "Close some documents or programs, then try again."
        }
    }
}

extension GrantError: LocalizedError {
    public var errorDescription: String? { CocoaErrorText(self).description }
    public var failureReason: String? { CocoaErrorText(self).reason }
    public var recoverySuggestion: String? { CocoaErrorText(self).suggestion }
}

extension CoordinationError: LocalizedError {
    public var errorDescription: String? { CocoaErrorText(self).description }
    public var failureReason: String? { CocoaErrorText(self).reason }
    public var recoverySuggestion: String? { CocoaErrorText(self).suggestion }
}
