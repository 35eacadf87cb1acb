import GrantControl
import Glibc
import GrantModel

/// Who waits. One claimant waits for one thing at a time, a thread or a task, so a circle of them can be found (`.deadlock`).
public struct Claimant: Hashable, Sendable {
    let id: GrantID

    init(id: GrantID) { self.id = id }

    /// Somebody new.
    public init() { id = .random() }

    /// In hexadecimal, as `description` gives it: so that processes that wait for each other can be one claimant.
    public init?(_ text: String) {
        guard let id = GrantID(text) else { return nil }
        self.id = id
    }

    public var description: String { id.description }

    private static let process = GrantID.random()

    /// One for each thread of this process.
    public static var currentThread: Claimant {
        Claimant(id: GrantID(high: process.high, low: process.low ^ UInt64(pthread_self())))
    }
}

/// One item, and how it is to be used.
public struct CoordinatedAccess: Sendable, Equatable {
    public enum Kind: UInt8, Sendable { case reading, writing }

    /// What the claimant is about to do. It tells presenters what to expect; what is about metadata alone meets only that, and what displaces the
    /// item (deleting, moving, replacing) meets everything.
    public enum Intent: UInt8, Sendable {
        case content, metadata, deleting, moving, merging, replacing
        /// Reading, to make a copy that outlives the claim: `Claim.snapshot`.
        case uploading
    }

    /// On the host, or below a mount of the store. The last component need not exist.
    public var path: [UInt8]
    public var kind: Kind
    public var intent: Intent
    /// Whether presenters are asked to save before it is read.
    public var savesFirst: Bool
    /// Whether a link, as the last component, is followed first: once, before the claim is made.
    public var followsLink: Bool
    /// Of what is moved: where to. Claimed for writing as well.
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
