import GrantModel

/// Why etcd did not do what it was asked for.
public enum EtcdFailure: Error, Sendable, Equatable {
    /// No endpoint gave an answer in time; the text says what each of them did.
    case unreachable(String)
    /// The certificate of an endpoint is not to be trusted.
    case distrusted(String)
    /// Our certificate or key is refused, or is none.
    case ownCertificate(String)
    /// The user or the password is wrong.
    case refusedLogin(user: String)
    /// etcd has users, and none was named.
    case needsLogin
    /// A user was named, and etcd has none: everybody who reaches it may do anything.
    case isOpen
    /// The user's roles do not allow it.
    case denied
    /// The database is full: what writes is refused, what reads or deletes is not.
    case full
    /// The revisions that were asked for are forgotten; from this one on they are there.
    case compacted(Int64)
    case noSuchLease
    /// Something is there already: a user, a role, a lease.
    case exists
    case tooLarge
    /// It answered with something that no etcd says.
    case nonsense(endpoint: String, String)
    /// The caller said to stop.
    case stopped
    case other(String)

    /// For people. `what`: what was wanted.
    public func error(_ what: String) -> GrantError {
        switch self {
        case .unreachable(let reason):
            GrantError(.system, what, cause: "no endpoint of etcd answers: \(reason)", advice: "grantfs fleet status shows each of them")
        case .distrusted(let reason):
            GrantError(
                .permission, what, cause: "the server's certificate is not trusted: \(reason)",
                advice: "give the authority that signed it with --ca, and see that it has not expired")
        case .ownCertificate(let reason):
            GrantError(
                .permission, what, cause: "the client's certificate is not accepted: \(reason)",
                advice: "give one that the servers' authority has signed, with --cert and --key")
        case .refusedLogin(let user):
            GrantError(.permission, what, cause: "etcd does not know the user “\(user)” with this password")
        case .needsLogin: GrantError(.permission, what, cause: "etcd wants a user and a password")
        case .isOpen:
            GrantError(
                .permission, what, cause: "etcd asks nobody for a password: whoever reaches it may do anything",
                advice: "etcdctl auth enable")
        case .denied: GrantError(.permission, what, cause: "the roles of this user in etcd do not allow it")
        case .full:
            GrantError(
                .storeFull, what, cause: "the database of etcd is full",
                advice: "compact and defragment it, then etcdctl alarm disarm; revocations are taken all the same")
        case .compacted: GrantError(.system, what, cause: "etcd has forgotten the revisions that were asked for")
        case .noSuchLease: GrantError(.system, what, cause: "the lease is gone")
        case .exists: GrantError(.alreadyExists, what, cause: "etcd has it already")
        case .tooLarge: GrantError(.usage, what, cause: "it is larger than etcd takes")
        case .nonsense(let endpoint, let text): GrantError(.system, what, cause: "\(endpoint) is no etcd: \(text)")
        case .stopped: GrantError(.system, what, cause: "it was stopped")
        case .other(let text): GrantError(.system, what, cause: text)
        }
    }

    /// By the words of etcd, which are the same from 3.4 to 3.6; gRPC's codes say too little.
    init(message: String, user: String) {
        self =
            switch message {
            case let text where text.contains("authentication failed"): .refusedLogin(user: user)
            case let text where text.contains("user name is empty"): .needsLogin
            case let text where text.contains("authentication is not enabled"): .isOpen
            case let text where text.contains("permission denied"): .denied
            case let text where text.contains("database space exceeded"): .full
            case let text where text.contains("requested lease not found"): .noSuchLease
            case let text where text.contains("already exists"): .exists
            case let text where text.contains("request is too large"): .tooLarge
            default: .other(message)
            }
    }
}
