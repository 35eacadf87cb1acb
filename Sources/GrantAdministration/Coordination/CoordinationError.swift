import GrantControl
import Glibc
import GrantModel
import GrantStore

/// Why a claim was not granted, or is no longer held.
public enum CoordinationError: Error, Sendable, Equatable, CustomStringConvertible {
    /// No grant of the store leads to the path: ENOENT.
    case outside([UInt8])
    /// The grant is revoked or has expired, before or during the wait for the claim, or while it
    /// was held: EACCES.
    case revoked([UInt8])
    /// The store has no live mount: ENOTCONN.
    case noMount
    /// The claimant would wait for itself in the end: EDEADLK.
    case deadlock
    /// ETIMEDOUT.
    case timedOut
    /// ECANCELED.
    case cancelled
    /// A daemon died during the wait for the claim or while it was held: ENOTCONN.
    case daemonDied(mountpoint: [UInt8])
    /// Any other error, for people: EIO.
    case failed(String)

    public var errno: Int32 {
        switch self {
        case .outside: ENOENT
        case .revoked: EACCES
        case .noMount, .daemonDied: ENOTCONN
        case .deadlock: EDEADLK
        case .timedOut: ETIMEDOUT
        case .cancelled: ECANCELED
        case .failed: EIO
        }
    }

    public var description: String { grantError.description }

    /// The error as commands show it.
    public var grantError: GrantError {
        func shown(_ path: [UInt8]) -> String { "“\(String(decoding: path, as: UTF8.self))”" }
        return switch self {
        case .outside(let path):
            GrantError(
                .notFound, "\(shown(path)) cannot be claimed", cause: "no active grant leads there in any mount",
                advice: "grantfs list shows the grants")
        case .revoked(let path): GrantError(.permission, "\(shown(path)) cannot be claimed", cause: "its grant is revoked or expired")
        case .noMount: GrantError(.notFound, "there is no claim", cause: "nothing of the store is mounted", advice: "grantfs mount")
        case .deadlock:
            GrantError(.system, "there is no claim", cause: "its holder waits for this claimant: a deadlock")
        case .timedOut: GrantError(.system, "there is no claim", cause: "others hold it, or a daemon is not ready, and the time is over")
        case .cancelled: GrantError(.system, "there is no claim", cause: "it was given up")
        case .daemonDied(let mountpoint): GrantError(.system, "the claim is lost", cause: "the daemon of \(shown(mountpoint)) has ended")
        case .failed(let text): GrantError(.system, "there is no claim", cause: text)
        }
    }
}
