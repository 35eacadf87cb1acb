import GrantModel
import GrantSystem

/// A command's request to the daemon of one mount.
public enum ControlRequest: Sendable, Equatable {
    /// The store has changed: read it again, and apply it to these grants and all others.
    ///
    /// Answer when that is in force. When the time has passed, answer with the state that was
    /// reached.
    case apply(grants: [GrantID], timeoutMilliseconds: UInt32)
    /// Close every descriptor of these grants, so that their filesystem can be unmounted.
    ///
    /// They stay closed until it was unmounted.
    case release(grants: [GrantID], timeoutMilliseconds: UInt32)
    /// Shut these grants although their withdrawal could not be recorded.
    ///
    /// They stay shut until the store changes them.
    case shut(grants: [GrantID], timeoutMilliseconds: UInt32)
    case status
    /// The mount's counters.
    case metrics
    /// The present directories of these grants. Answered with `located`.
    case locate(grants: [GrantID])
    /// The progress of running withdrawals of these grants. Answered with `progress`.
    case progress(grants: [GrantID])
    /// The claimants for which the claims of this claimant wait. Answered with `waits`.
    case waits(claimant: GrantID)
    /// Programs that use an offered directory for the first time, as soon as there is a question after this number. Answered with
    /// `questions`. As long as this is requested again and again, such programs wait.
    case questions(after: UInt64, timeoutMilliseconds: UInt32)
    /// Answered with `done`, by a daemon that is able to answer.
    case ping
    /// Unmount and end.
    case unmount
    /// Make the connection a session. Answered with `done`.
    ///
    /// From then on messages go both ways: `SessionRequest`, `SessionNews`.
    case session
    /// Hand the mount over to the requesting process.
    ///
    /// It is a daemon of this or a later version.
    ///
    /// `HandoverMessage`s and descriptors follow on the connection.
    case handOver
}

/// A daemon's reply.
public enum ControlReply: Sendable, Equatable {
    /// An outcome for each grant of the request.
    case applied([GrantOutcome])
    case status(MountStatus)
    case metrics(MountMetrics)
    /// A place for each grant that the mount holds open. Other grants are omitted.
    case located([GrantPlace])
    /// The progress of each grant with a running withdrawal. Other grants are omitted.
    case progress([GrantProgress])
    /// Whether the claimant holds a claim in the mount, and which claimants it waits for.
    case waits(holds: Bool, [ClaimBlock])
    case questions([OfferQuestion])
    /// The request failed. The text is for people.
    case failed(String)
    case done
}

/// A program waits for the answer whether it may use an offered directory.
public struct OfferQuestion: Sendable, Equatable {
    /// Ascending in a mount.
    public var number: UInt64
    public var grant: GrantID
    /// The thread that was first, in the daemon's process namespace.
    public var thread: Int32

    public init(number: UInt64, grant: GrantID, thread: Int32) {
        (self.number, self.grant, self.thread) = (number, grant, thread)
    }
}

/// The outcome of a change to one grant, in one mount.
///
/// The counts are 0 if nothing was withdrawn.
public struct GrantOutcome: Sendable, Equatable {
    public var grant: GrantID
    /// Whether the change is in force.
    public var confirmed: Bool
    public var milliseconds: Double
    /// Operations that were running and have ended or were answered.
    public var drained: UInt64
    public var flushedBytes: UInt64
    public var invalidatedInodes: UInt64
    /// Operations whose backing filesystem hangs.
    ///
    /// Their callers were released, and their results will be discarded.
    public var pending: UInt64
    /// Names below the granted directory of which the kernel still has cached data.
    ///
    /// A program holds a kernel lock that their invalidation needs.
    public var unforgotten: [[UInt8]]
    /// Processes that have yet to process an earlier reply, and get no processor.
    public var processes: [Int32]
    /// Node ids of directories whose invalidation waits for a kernel lock of a program.
    public var blockedDirectories: [UInt64]

    public init(
        grant: GrantID, confirmed: Bool, milliseconds: Double = 0, drained: UInt64 = 0, flushedBytes: UInt64 = 0,
        invalidatedInodes: UInt64 = 0, pending: UInt64 = 0, unforgotten: [[UInt8]] = [], processes: [Int32] = [],
        blockedDirectories: [UInt64] = []
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
        self.blockedDirectories = blockedDirectories
    }
}

/// A waiting claim, and a claim that it waits for.
public struct ClaimBlock: Sendable, Equatable {
    /// The ids of `ClaimRequest`.
    public var waiting: GrantID
    public var blocker: GrantID
    /// The blocker's claimant.
    public var claimant: GrantID

    public init(waiting: GrantID, blocker: GrantID, claimant: GrantID) {
        (self.waiting, self.blocker, self.claimant) = (waiting, blocker, claimant)
    }
}

/// Where a mount holds a grant's directory open.
///
/// A hint: its user must compare the directory there with the bookmark.
public struct GrantPlace: Sendable, Equatable {
    public var grant: GrantID
    /// Absolute, in the daemon's mount namespace.
    public var path: [UInt8]

    public init(grant: GrantID, path: [UInt8]) {
        self.grant = grant
        self.path = path
    }
}

/// How a mount notices changes that are made in a granted directory on the host.
public enum HostChangeMeans: UInt8, Sendable, CaseIterable {
    /// The filesystem or this user cannot be watched.
    ///
    /// Changes show when the kernel's timeouts expire.
    case nobody = 0
    /// fanotify(7), for the whole filesystem.
    case fanotify = 1
    /// inotify(7), for each directory that the kernel knows, within the user's limit of watches.
    case inotify = 2
    /// Not needed, because the kernel caches nothing (`cache=none`).
    case notNeeded = 3
}

/// One grant as it is live in a mount.
public struct GrantStatus: Sendable, Equatable {
    public var id: GrantID
    public var name: GrantName
    public var state: GrantState
    /// The directory's present path. It is nil if it cannot be found.
    public var path: [UInt8]?
    /// Inodes of it that the kernel knows.
    public var inodes: UInt64
    /// Running operations.
    public var inFlight: UInt64
    public var traffic: GrantTraffic
    /// It is nil if its directory is not open, and from a daemon that does not report it.
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

/// The operations and bytes of a grant in one mount, since its last activation there.
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
    /// Requests of the kernel since the mount was made, by kind.
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

/// How many requests of one kind a mount has received.
///
/// The kind is an opcode of linux/fuse.h, enum fuse_opcode.
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

/// A daemon's handling of requests.
public protocol ControlHandler: Sendable {
    /// Handles one request. Called on a thread for each connection, so it may block.
    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply
    /// Hands the mount over to the process at the other end, by `HandoverMessage`s.
    ///
    /// See `ControlRequest.handOver`. Called in the same way.
    func handOver(over socket: borrowing UnixSocket, of server: ControlServer)
}

extension ControlHandler {
    public func handOver(over socket: borrowing UnixSocket, of server: ControlServer) {
        try? HandoverMessage.refused("it cannot hand over its mount").send(over: socket, deadline: Clock.deadline(seconds: 1))
    }
}
