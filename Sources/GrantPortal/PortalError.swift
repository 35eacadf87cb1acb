import GrantModel

/// What a caller gets instead of a result: an error's name on the bus, and a text.
struct PortalError: Error, Sendable {
    enum Kind: String, Sendable {
        case failed = "org.freedesktop.portal.Error.Failed"
        case invalidArgument = "org.freedesktop.portal.Error.InvalidArgument"
        case notFound = "org.freedesktop.portal.Error.NotFound"
        case exists = "org.freedesktop.portal.Error.Exists"
        case notAllowed = "org.freedesktop.portal.Error.NotAllowed"
        case cancelled = "org.freedesktop.portal.Error.Cancelled"
        /// Of file transfers, as programs know them.
        case accessDenied = "org.freedesktop.DBus.Error.AccessDenied"
        /// A caller has more waiting, open or made than one may have.
        case limitsExceeded = "org.freedesktop.DBus.Error.LimitsExceeded"
    }

    let kind: Kind
    /// The text for the log and the owner: it may have paths of the host.
    let message: String
    /// What an application is told, which says nothing of the host.
    let outside: String

    /// `outside`: what applications are told, if it differs from `message`. Of `.failed` they are told no details.
    init(_ kind: Kind, _ message: String, outside: String? = nil) {
        (self.kind, self.message, self.outside) = (kind, message, outside ?? (kind == .failed ? Self.hasFailed : message))
    }

    private static let hasFailed = "The portal has failed to do that"

    /// As an application gets it.
    var forApplications: PortalError { PortalError(kind, outside, outside: outside) }

    static let noDescriptor = PortalError(.invalidArgument, "Invalid fd passed")
    static let notAllowed = PortalError(.notAllowed, "Not enough permissions")
    static let notInSandbox = PortalError(.notAllowed, "Not allowed in sandbox")
    static let arguments = PortalError(.invalidArgument, "Invalid arguments")

    static func noDocument(_ id: String) -> PortalError { PortalError(.notFound, "No such document: \(id)") }

    /// What a grant failed with.
    init(_ error: GrantError) {
        switch error.code {
        case .permission: self.init(.notAllowed, error.description, outside: PortalError.notAllowed.message)
        case .invalidDirectory, .usage:
            self.init(
                .invalidArgument, error.cause.map { "Invalid fd passed: \($0)" } ?? error.message, outside: PortalError.noDescriptor.message
            )
        case .alreadyExists: self.init(.exists, error.description, outside: "It exists already")
        case .notFound: self.init(.notFound, error.description, outside: "It is not there")
        default: self.init(.failed, error.description)
        }
    }
}
