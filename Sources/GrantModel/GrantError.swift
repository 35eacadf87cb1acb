/// An error to be shown to people: `grantfs: what went wrong: why (what to do)`.
public struct GrantError: Error, Sendable, CustomStringConvertible {
    /// The kind of failure. One table maps it to an exit status.
    public enum Code: Sendable, CaseIterable {
        /// The arguments of a command or call are wrong.
        case usage
        case notFound
        case ambiguous
        case alreadyExists
        case invalidDirectory
        /// The bytes are not a bookmark, or not one of this store.
        case invalidBookmark
        /// A file that declares grants cannot be parsed.
        case invalidFile
        case permission
        case storeUnavailable
        case storeDamaged
        case storeNewer
        case storeFull
        case mountFailed
        case unsupported
        /// Descriptors or memory have run out, in this process or on the machine. It does not tell
        /// whether the requested thing exists. The caller may try again.
        case exhausted
        /// Recorded, but some mount has not confirmed it.
        case unconfirmed
        case system
        /// The operation was done in part. The message names the rest.
        case incomplete
    }

    public let code: Code
    /// What went wrong, without a full stop.
    public let message: String
    /// Why, where it is known.
    public let cause: String?
    /// What to do about it.
    public let advice: String?

    public init(_ code: Code, _ message: String, cause: String? = nil, advice: String? = nil) {
        self.code = code
        self.message = message
        self.cause = cause
        self.advice = advice
    }

    /// Returns the same error, whose advice begins with the steps already done.
    package func saying(_ outcome: String) -> GrantError {
        GrantError(code, message, cause: cause, advice: advice.map { "\(outcome): \($0)" } ?? outcome)
    }

    public var description: String {
        var text = message
        if let cause { text += ": \(cause)" }
        if let advice { text += " (\(advice))" }
        return text
    }

    /// The exit status of a command that fails with this error.
    public var exitStatus: Int32 {
        switch code {
        case .usage: 2
        case .unconfirmed, .incomplete: 3
        case .notFound, .ambiguous, .alreadyExists, .invalidDirectory, .invalidBookmark, .invalidFile, .permission, .storeUnavailable,
            .storeDamaged,
            .storeNewer,
            .storeFull, .mountFailed, .unsupported, .exhausted, .system:
            1
        }
    }
}
