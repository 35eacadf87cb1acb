/// The JSON that commands print, with the promised keys.
public struct GrantDocument: Decodable, Sendable {
    public let id: String
    public let view: String
    public let name: String
    public let path: String?
    public let access: String
    public let state: String
    public let bookmark: String
    public let stale: Bool
    public let reason: String?
    public let copy: String?
    public let expires: String?
}

public struct ConfirmationDocument: Decodable, Sendable {
    public let mountpoint: String
    public let pid: Int32
    public let confirmed: Bool
    public let milliseconds: Double
    public let drained: Int
    public let flushedBytes: Int
    public let invalidatedInodes: Int
    public let pending: Int
    public let reason: String?
    public let unforgotten: [String]?
    public let processes: [Int32]?
    public let ended: [StatusDocument.Holder]?
}

public struct RevocationDocument: Decodable, Sendable {
    public let id: String
    public let view: String
    public let name: String
    public let mounts: [ConfirmationDocument]
    public var isConfirmed: Bool { !mounts.isEmpty && mounts.allSatisfy(\.confirmed) }
}

public struct StatusDocument: Decodable, Sendable {
    public struct Scope: Decodable, Sendable {
        public let id: String
        public let name: String
        public let state: String
        public let inodes: Int
        public let inFlight: Int
    }
    public struct Holder: Decodable, Sendable {
        public let pid: Int32
        public let command: String
        public let kinds: [String]
        public let paths: [String]
    }
    public struct Mount: Decodable, Sendable {
        public let view: String
        public let mountpoint: String
        public let pid: Int32
        public let grants: [Scope]
        public let inodes: Int
        public let descriptors: Int
        public let requests: [String: Int]
        public let holders: [Holder]
    }
    public let mounts: [Mount]
}

/// The result of one access of the probe.
public struct AccessResult: Decodable, Sendable {
    public let held: String
    public let kind: String
    /// The name of an errno, `OK`, `SIGBUS`, `SKIP` (not possible here) or `WRONG` (other bytes than the file's).
    public let errno: String
    /// The required result after a revocation: an errno, `SIGBUS`, `OK`, `FAIL` (any failure),
    /// `ANY`.
    public let after: String
    /// Whether a read-only grant refuses the access with EROFS.
    public let change: Bool

    public var row: String { "\(held): \(kind)" }
}

/// The result of one thread of the load.
public struct WorkerResult: Decodable, Sendable {
    public let worker: String
    public let succeeded: Int
    /// Operations that began and ended while the grant was revoked, and succeeded.
    public let leaked: Int
    public let refused: Int
    public let failed: Int
    public let failedWith: String
    /// Refusals other than EACCES and SIGBUS.
    public let odd: Int
    public let oddError: String
    public let lastError: String
    /// Changes that failed with EIO, done or not, because a daemon died.
    public let interrupted: Int
    public let longestMilliseconds: Double
}
