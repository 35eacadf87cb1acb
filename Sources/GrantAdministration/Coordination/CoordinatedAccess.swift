import GrantControl
import Glibc
import GrantModel

/// A thread or task that waits for claims. A claimant waits for one thing at a time, so that deadlocks can be detected (`.deadlock`).
public struct Claimant: Hashable, Sendable {
    let id: GrantID

    init(id: GrantID) { self.id = id }

    /// Makes a new claimant.
    public init() { id = .random() }

    /// Takes a claimant's `description` in hexadecimal, so that processes that wait for each other can be one claimant.
    public init?(_ text: String) {
        guard let id = GrantID(text) else { return nil }
        self.id = id
    }

    public var description: String { id.description }

    private static let process = GrantID.random()

    /// The claimant of the current thread.
    public static var currentThread: Claimant {
        Claimant(id: GrantID(high: process.high, low: process.low ^ UInt64(pthread_self())))
    }
}

/// One item, and the kind of access to it.
public struct CoordinatedAccess: Sendable, Equatable {
    public enum Kind: UInt8, Sendable { case reading, writing }

    /// What the claimant is about to do. Presenters are told of it. An access to metadata conflicts
    /// only with other access to metadata. One that displaces the item (deleting, moving,
    /// replacing) conflicts with every access.
    public enum Intent: UInt8, Sendable {
        case content, metadata, deleting, moving, merging, replacing
        /// Reading, to make a copy that outlives the claim: `Claim.snapshot`.
        case uploading
    }

    /// A path on the host, or in a mount of the store. The last component need not exist.
    public var path: [UInt8]
    public var kind: Kind
    public var intent: Intent
    /// Whether presenters are asked to save before the item is read.
    public var savesFirst: Bool
    /// Whether a symbolic link in the last component is resolved, once, before the claim is made.
    public var followsLink: Bool
    /// For an item to be moved: its new path, which is claimed for writing as well.
    public var newPath: [UInt8]?

    public init(
        path: [UInt8], kind: Kind, intent: Intent = .content, savesFirst: Bool = true, followsLink: Bool = false, newPath: [UInt8]? = nil
    ) {
        self.path = path
        self.kind = kind
        self.intent = intent
        self.savesFirst = savesFirst
        self.followsLink = followsLink
        self.newPath = newPath
    }

    public static func reading(
        _ path: [UInt8], _ intent: Intent = .content, savesFirst: Bool = true, followsLink: Bool = false
    ) -> CoordinatedAccess {
        CoordinatedAccess(path: path, kind: .reading, intent: intent, savesFirst: savesFirst, followsLink: followsLink)
    }

    public static func writing(_ path: [UInt8], _ intent: Intent = .content, newPath: [UInt8]? = nil) -> CoordinatedAccess {
        CoordinatedAccess(path: path, kind: .writing, intent: intent, newPath: newPath)
    }
}

extension CoordinatedAccess.Intent {
    var wire: ItemRequest.Intent {
        switch self {
        case .content: .content
        case .metadata: .metadata
        case .deleting: .deleting
        case .moving: .moving
        case .merging: .merging
        case .replacing: .replacing
        case .uploading: .uploading
        }
    }
}
