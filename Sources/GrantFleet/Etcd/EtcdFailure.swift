import GrantModel
import GrantSystem

/// The reason why etcd did not execute a request.
public enum EtcdFailure: Error, Sendable, Equatable {
    /// No endpoint could be asked. The text has a reason for each. Nothing was changed.
    case unreachable(String)
    /// No endpoint answered in time, and one of them was sent the request: it may have been executed, or still be.
    case unanswered(String)
    /// An endpoint's certificate is not trusted.
    case untrustedServer(String)
    /// Our certificate or key is refused or invalid.
    case clientCertificate(String)
    /// The user name or password is wrong.
    case refusedLogin(user: String)
    /// etcd has authentication enabled, and no user was given.
    case needsLogin
    /// A user was given, and etcd has authentication disabled: every client with access to it may
    /// do anything.
    case isOpen
    /// The user's roles do not permit it.
    case denied
    /// The database is full: writes fail, reads and deletions work.
    case full
    /// An alarm says that the members differ: etcd refuses every write, deletions included.
    case corrupt
    /// The requested revisions are compacted. This is the first one left.
    case compacted(Int64)
    case noSuchLease
    /// A user, role or lease exists already.
    case exists
    case tooLarge
    /// The response is not one of etcd.
    case invalidResponse(endpoint: String, String)
    /// The caller has stopped it.
    case stopped
    case other(String)

    /// Whether another endpoint, or the same a moment later, may answer.
    public var isSilence: Bool {
        switch self {
        case .unreachable, .unanswered: true
        default: false
        }
    }

    /// The error for people. `what`: the purpose of the request.
    public func error(_ what: String) -> GrantError {
        switch self {
        case .unreachable(let reason), .unanswered(let reason):
            GrantError(.system, what, cause: "no endpoint of etcd answers: \(reason)", advice: "grantfs fleet status shows each of them")
        case .untrustedServer(let reason):
            GrantError(
                .permission, what, cause: "the server's certificate is not trusted: \(reason)",
                advice: "give the authority that signed it with --ca, and see that it has not expired")
        case .clientCertificate(let reason):
            GrantError(
                .permission, what, cause: "the client's certificate is not accepted: \(reason)",
                advice: "give one that the servers' authority has signed, with --cert and --key")
        case .refusedLogin(let user):
            GrantError(.permission, what, cause: "etcd does not know the user “\(user)” with this password")
        case .needsLogin: GrantError(.permission, what, cause: "etcd wants a user and a password")
        case .isOpen:
            GrantError(
                .permission, what, cause: "etcd asks for no password: every program that reaches it may do anything",
                advice: "etcdctl auth enable")
        case .denied: GrantError(.permission, what, cause: "the roles of this user in etcd do not allow it")
        case .full:
            GrantError(
                .storeFull, what, cause: "the database of etcd is full",
                advice: "compact and defragment it, then etcdctl alarm disarm: revocations work meanwhile")
        case .corrupt:
            GrantError(
                .system, what, cause: "etcd refuses every write, because of an alarm that its members differ (CORRUPT)",
                advice: "compare the members with etcdctl endpoint hashkv, then etcdctl alarm disarm")
        case .compacted: GrantError(.system, what, cause: "etcd has compacted the requested revisions")
        case .noSuchLease: GrantError(.system, what, cause: "the lease is gone")
        case .exists: GrantError(.alreadyExists, what, cause: "etcd has it already")
        case .tooLarge: GrantError(.usage, what, cause: "it is larger than etcd takes")
        case .invalidResponse(let endpoint, let text): GrantError(.system, what, cause: "\(endpoint) is not etcd: \(text)")
        case .stopped: GrantError(.system, what, cause: "it was stopped")
        case .other(let text): GrantError(.system, what, cause: text)
        }
    }

    /// Recognises etcd's messages, which are the same from 3.4 to 3.6. gRPC's codes are too coarse.
    init(message: String, user: String) {
        self =
            switch message {
            case let text where text.contains(part: "authentication failed"): .refusedLogin(user: user)
            case let text where text.contains(part: "user name is empty"): .needsLogin
            case let text where text.contains(part: "authentication is not enabled"): .isOpen
            case let text where text.contains(part: "permission denied"): .denied
            case let text where text.contains(part: "database space exceeded"): .full
            case let text where text.contains(part: "corrupt cluster"): .corrupt
            case let text where text.contains(part: "requested lease not found"): .noSuchLease
            case let text where text.contains(part: "already exists"): .exists
            case let text where text.contains(part: "request is too large"): .tooLarge
            default: .other(message)
            }
    }
}
