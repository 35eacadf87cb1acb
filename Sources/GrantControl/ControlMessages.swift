import GrantModel
import GrantSystem

/// What a command asks of the daemon of one mount.
public enum ControlRequest: Sendable, Equatable {
    /// The store has changed: read it again, make what it says true for these grants and all others, and answer when that is
    /// in force, or when the time has passed with what was reached until then.
    case apply(grants: [GrantID], timeoutMilliseconds: UInt32)
    /// Let go of every descriptor of these grants, so that their filesystem can be unmounted; they stay away until it was.
    case release(grants: [GrantID], timeoutMilliseconds: UInt32)
    /// The withdrawal of these grants could not be recorded: shut them all the same, until the store says otherwise.
    case shut(grants: [GrantID], timeoutMilliseconds: UInt32)
    case status
    /// What the mount counts.
    case metrics
    /// Where are the directories of these grants now? Answered with `located`.
    case locate(grants: [GrantID])
    /// How far are the withdrawals of these grants that are under way? Answered with `progress`.
    case progress(grants: [GrantID])
    /// Whom do the claims of this claimant wait for? Answered with `waits`.
    case waits(claimant: GrantID)
    /// Answered with `done`, by a daemon that is able to answer.
    case ping
    /// Unmount and end.
    case unmount
    /// Answered with `done`; from then on the connection is a session, on which messages go both ways: `SessionRequest`, `SessionNews`.
    case session
    /// Hand the mount over to the process that asks, which is a daemon of this or a later version. What follows on the connection is `HandoverMessage`, and descriptors.
    case handOver
}

/// What the daemon answers.
public enum ControlReply: Sendable, Equatable {
    /// An outcome for each grant of the request.
    case applied([GrantOutcome])
    case status(MountStatus)
    case metrics(MountMetrics)
    /// A place for each grant that the mount holds open; the others are left out.
    case located([GrantPlace])
    /// For each grant whose withdrawal is under way; the others are left out.
    case progress([GrantProgress])
    /// Whether the claimant holds anything in the mount, and whom it waits for there.
    case waits(holds: Bool, [ClaimBlock])
    /// It could not be done; the text is for people.
    case failed(String)
    case done
}

/// What came of a change to one grant, in one mount. The counts are 0 where nothing was withdrawn.
public struct GrantOutcome: Sendable, Equatable {
    public var grant: GrantID
    /// Whether the change is in force.
    public var confirmed: Bool
    public var milliseconds: Double
    /// Operations that were under way and have ended or were answered.
    public var drained: UInt64
    public var flushedBytes: UInt64
    public var invalidatedInodes: UInt64
    /// Operations whose backing filesystem hangs; their callers were released and their results will be thrown away.
    public var pending: UInt64
    /// Names below the granted directory of which the kernel has something cached yet, because a program holds a lock of the kernel's.
    public var unforgotten: [[UInt8]]
    /// Processes that have yet to process a reply from before, and get no processor.
    public var processes: [Int32]

    public init(
        grant: GrantID, confirmed: Bool, milliseconds: Double = 0, drained: UInt64 = 0, flushedBytes: UInt64 = 0,
        invalidatedInodes: UInt64 = 0, pending: UInt64 = 0, unforgotten: [[UInt8]] = [], processes: [Int32] = []
    ) {
        self.grant = grant
        self.confirmed = confirmed
        self.milliseconds = milliseconds
        self.drained = drained
        self.flushedBytes = flushedBytes
        self.invalidatedInodes = invalidatedInodes
        self.pending = pending
        self.unforgotten = unforgotten
        self.processes = processes
    }
}

/// A claim that waits, and one that it waits for.
public struct ClaimBlock: Sendable, Equatable {
    /// The ids of `ClaimRequest`.
    public var waiting: GrantID
    public var blocker: GrantID
    /// Whose the blocker is.
    public var claimant: GrantID

    public init(waiting: GrantID, blocker: GrantID, claimant: GrantID) {
        (self.waiting, self.blocker, self.claimant) = (waiting, blocker, claimant)
    }
}

/// Where a mount holds a grant's directory open. A hint: whoever uses it compares what is there with the bookmark.
public struct GrantPlace: Sendable, Equatable {
    public var grant: GrantID
    /// Absolute, in the daemon's mount namespace.
    public var path: [UInt8]

    public init(grant: GrantID, path: [UInt8]) {
        self.grant = grant
        self.path = path
    }
}

/// Who tells a mount of changes that are made in a granted directory beside it.
public enum HostChangeMeans: UInt8, Sendable, CaseIterable {
    /// The filesystem or this user cannot be watched: changes show when the kernel's time is over.
    case nobody = 0
    /// fanotify(7), for the whole filesystem.
    case fanotify = 1
    /// inotify(7), for each directory that the kernel knows, as far as the user's watches go.
    case inotify = 2
    /// Nobody needs to: the kernel keeps nothing (`cache=none`).
    case notNeeded = 3
}

/// One grant as it is live in a mount.
public struct GrantStatus: Sendable, Equatable {
    public var id: GrantID
    public var name: GrantName
    public var state: GrantState
    /// Where the directory is now; nil when it cannot be found.
    public var path: [UInt8]?
    /// Inodes of it that the kernel knows.
    public var inodes: UInt64
    /// Operations under way.
    public var inFlight: UInt64
    public var traffic: GrantTraffic
    /// nil where its directory is not open, and of a daemon that does not say.
    public var hostChanges: HostChangeMeans?

    public init(
        id: GrantID, name: GrantName, state: GrantState, path: [UInt8]?, inodes: UInt64, inFlight: UInt64,
        traffic: GrantTraffic = GrantTraffic(), hostChanges: HostChangeMeans? = nil
    ) {
        self.hostChanges = hostChanges
        self.traffic = traffic
        self.id = id
        self.name = name
        self.state = state
        self.path = path
        self.inodes = inodes
        self.inFlight = inFlight
    }
}

/// What has gone through a grant in one mount, since it was last made active there.
public struct GrantTraffic: Sendable, Equatable {
    public var operations: UInt64
    public var readBytes: UInt64
    public var writtenBytes: UInt64

    public init(operations: UInt64 = 0, readBytes: UInt64 = 0, writtenBytes: UInt64 = 0) {
        self.operations = operations
        self.readBytes = readBytes
        self.writtenBytes = writtenBytes
    }
}

/// One live mount.
public struct MountStatus: Sendable, Equatable {
    public var view: ViewName
    public var mountpoint: [UInt8]
    public var pid: Int32
    public var since: Instant
    public var grants: [GrantStatus]
    public var inodes: UInt64
    /// Open descriptors of the daemon.
    public var descriptors: UInt64
    /// Requests of the kernel since the mount was made, by their kind.
    public var requests: [RequestCount]

    public init(
        view: ViewName, mountpoint: [UInt8], pid: Int32, since: Instant, grants: [GrantStatus], inodes: UInt64, descriptors: UInt64,
        requests: [RequestCount] = []
    ) {
        self.view = view
        self.mountpoint = mountpoint
        self.pid = pid
        self.since = since
        self.grants = grants
        self.inodes = inodes
        self.descriptors = descriptors
        self.requests = requests
    }
}

/// How many requests of one kind (linux/fuse.h, enum fuse_opcode) a mount has received.
public struct RequestCount: Sendable, Equatable {
    public var opcode: UInt32
    public var count: UInt64

    public init(opcode: UInt32, count: UInt64) {
        self.opcode = opcode
        self.count = count
    }
}

/// The process at the other end of a connection, as the kernel knows it.
public struct Peer: Sendable, Equatable {
    public var uid: UInt32
    public var pid: Int32

    public init(uid: UInt32, pid: Int32) {
        self.uid = uid
        self.pid = pid
    }
}

/// What a daemon does with requests.
public protocol ControlHandler: Sendable {
    /// Called on a thread for each connection; it may block.
    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply
    /// Hands over what is served to the process at the other end (`ControlRequest.handOver`), by `HandoverMessage`s. Called in the same way.
    func handOver(over socket: borrowing UnixSocket, of server: ControlServer)
}

extension ControlHandler {
    public func handOver(over socket: borrowing UnixSocket, of server: ControlServer) {
        try? HandoverMessage.refused("it cannot hand over what it serves").send(over: socket, deadline: Clock.deadline(seconds: 1))
    }
}
