import CGrantSystem
import GrantCoordinator
import GrantFUSE
import GrantLocks
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// The file system of one mount: what every operation works on.
///
/// Locking: operations take none here; `root` and `locks` guard themselves.
public final class ViewFS: @unchecked Sendable {
    // Safe to share: everything is fixed after `init` but the session, which has a lock.
    public let coordinator: Coordinator
    public let tree: NodeTree
    public let files: OpenFiles
    public let directories: OpenDirectories
    private let plan: DescriptorPlan
    public let names: VirtualDirectories
    let locks: LockTable
    let waiting = ClaimWaitQueue()
    let claimInvalidator = ClaimInvalidator()
    let workerQuota = WorkerQuota()
    let leases = LeaseWaitQueue()
    let closeQueue = CloseQueue()
    let refusedReadThrottle = RefusedReadThrottle()
    let policy: CachePolicy
    /// Whether the kernel opens files and directories by itself, locks them by itself, and no request says so: docs/decisions/zero-message-open.md. Said
    /// before the first request.
    @exclusivity(unchecked)
    public internal(set) nonisolated(unsafe) var kernelOpens = false
    let cachedDescriptors: CachedDescriptors
    /// The thread of which the listing of the root is to keep the kernel from keeping it; see `keepRootListingUncached`.
    let rootLister = Atomic<Int32>(-1)
    /// How many requests wait for the kernel to write back what it has of a file.
    let seekers = Atomic<Int>(0)
    /// nil where the kernel asks each time, or nobody else changes anything.
    let hostWatch: HostWatch?
    /// nil where others change nothing or locks are always answered in full.
    let oplocks: Oplocks?
    let handleBases = HandleBases()
    /// Where openings and changes are written down, if they are.
    public let audit: AuditTrail?
    let lastRefused = LastRefused()
    /// Whether a file with a set-gid bit and no execution for its group was ever met: members of the group keep that bit as they write
    /// (fs/attr.c, setattr_should_drop_sgid), and requests do not say who is one. Until then no write has to look.
    let hasPlainSetGID = Atomic<Bool>(false)
    let droppedWrites = DroppedWrites()
    let lostWrites = LostWrites()
    /// Whether reading files, and listing directories, leaves their times of last access alone.
    let leavesAccessTimes = Atomic<Bool>(false)
    let leavesDirectoryAccessTimes = Atomic<Bool>(false)
    let departures = Departures()
    /// What the next daemon has to know should this one die; nil when there will be none.
    public let records: RecoveryRecords?
    private let supervisor: Supervisor?
    /// What threads do by themselves.
    public let pauseGate = PauseGate()
    /// What the kernel is told as the generation of every node but the root. It is part of the handles that the kernel makes up for descriptors, and so
    /// says of what is held, long after this process, which mount it is of.
    public let generation: UInt32
    private let mounted = Lock<Session?>(nil)
    /// Bytes of tables that were given back since the C library was last asked to give back its own; see `trim`.
    let trimmed = Atomic<Int>(0)
    static let worthTrimming = 1 << 20
    /// How many requests had come when that was looked at last, and when the C library gave back memory last.
    let takenBefore = Atomic<UInt32>(0)
    let takenAtTrim = Atomic<UInt32>(0)
    /// So many requests in a second are hardly any; so many may have left something.
    static let (fewRequests, manyRequests): (UInt32, UInt32) = (100, 10_000)
    /// Of tests: statfs(2) of a file traps, by itself or while it holds a lock.
    let trap = getenv("GRANTFS_TEST_TRAP").map { String(cString: $0) == "locked" ? TestTrap.locked : .free } ?? .none

    /// From so many nodes on the kernel is asked which of them nobody uses (`prune`): fewer are told one by one sooner than that is known. Tests set another number.
    let prunedFrom = getenv("GRANTFS_TEST_PRUNED_FROM").flatMap { Int(String(cString: $0), radix: 10) } ?? 256
    /// How many withdrawals have the kernel let go of thousands of nodes at this moment.
    let prunings = Atomic<Int>(0)

    enum TestTrap { case none, free, locked }

    /// nil until the view is mounted. Not for the way of a request.
    public var session: Session? { mounted.withLock { $0 } }

    /// Workers at the most, fewer where there are few descriptors. Each hung request holds one, until its grant has its share (`WorkerQuota`).
    public static let workerLimit = 1000
    /// The slots of the threads that wait for locks: in so many grants at once somebody can wait for one.
    static let lockSlots = workerLimit..<workerLimit + 128

    /// `descriptorLimit`: how many descriptors the process may have: `DescriptorPlan` says what of them is for what.
    ///
    /// `holdsOpenings`: whether openings beside the mount are made to wait where a file is locked, so that its locks cost little (`Oplocks`).
    ///
    /// `generation`: another daemon's, of which this one takes the mount over; else a new one. `supervisor`: who has another daemon go on when this one dies.
    ///
    /// `nursery`: the name of a directory at the root in which each name leads to a directory, empty until grants are shown in it.
    public init(
        cache: CacheMode, descriptorLimit: Int, audit: AuditTrail? = nil, holdsOpenings: Bool = true, generation: UInt32? = nil,
        supervisor: Supervisor? = nil, nursery: GrantName? = nil
    ) {
        self.generation = generation ?? UInt32.random(in: 1...UInt32(Int32.max))
        self.audit = audit
        coordinator = Coordinator(slotCount: Self.sweeperSlot + 1)
        plan = DescriptorPlan(limit: descriptorLimit)
        cachedDescriptors = CachedDescriptors(limit: max(16, min(4096, plan.held / 8)))
        self.supervisor = supervisor
        tree = NodeTree(plan: plan, page: supervisor?.page)
        let chunks = supervisor == nil ? nil : try? (SharedChunks(withElements: true), SharedChunks(withElements: true))
        (files, directories) = (OpenFiles(tree.shares, shared: chunks?.0), OpenDirectories(tree.shares, shared: chunks?.1))
        let (tree, files, directories) = (tree, files, directories)
        records = supervisor.flatMap { try? RecoveryRecords($0, tree, files, directories) }
        names = VirtualDirectories(nursery: nursery)
        locks = LockTable(tree: tree, records: records, slots: Self.lockSlots)
        policy = CachePolicy(cache)
        hostWatch = cache == .none ? nil : HostWatch()
        oplocks = cache == .shared && holdsOpenings ? try? Oplocks(writers: locks.refreshers) : nil
        waiting.view = self
        workerQuota.view = self
        leases.view = self
        closeQueue.view = self
        refusedReadThrottle.view = self
        tree.close = { [unowned self] reader, writer, isDirectory in closeCached(reader, writer, isDirectory: isDirectory) }
    }

    /// Whether the kernel is to open files by itself: alone where nothing depends on who has what open. Before the mount; the granted directories that there
    /// are by then are known.
    ///
    /// `hasMandatory`: claims bind who comes through the mount, which is asked at openings.
    ///
    /// `hasSeveralViews`: there are directories besides the root that every view's programs may list: only the root's listing is kept from the kernel's cache (`keepRootListingUncached`).
    public func letKernelOpen(hasMandatory: Bool, hasSeveralViews: Bool) {
        let hasServer = names.open.contains { $0.scope.nodes.usesCallerGroups }
        kernelOpens = policy.writeBack && !hasSeveralViews && audit == nil && records == nil && !hasServer && !hasMandatory
    }

    /// Mounts the view at `mountpoint`, a path, and starts serving it.
    ///
    /// `leavesSetID`: set-id bits are left to the kernel, as on kernels that cannot leave them to us (before 5.11). `mapsDirectly`: what is opened
    /// past the cache can be mapped, as far as the kernel can do that (6.6 and later). `idlePolling`: see `SessionOptions`.
    public func mount(
        at mountpoint: [UInt8], source: String, words: [String], leavesSetID: Bool = false, mapsDirectly: Bool = true,
        idlePolling: IdlePolling? = nil
    ) throws(Errno) {
        let options = sessionOptions(source, words, leavesSetID, mapsDirectly, idlePolling)
        let (interrupted, poll) = sessionCallbacks
        let session = try Session(
            operations: Self.operationTable, state: Unmanaged.passUnretained(self).toOpaque(), options: options, mountpoint: mountpoint,
            workerLimit: plan.workers, interrupted: interrupted, pollWorkers: poll)
        adopt(session, words)
        try begin()
    }

    /// Goes on where another daemon was paused, once `begin` is called. As `mount`; `device` and `negotiation` are that one's (`Session`).
    public func takeOver(
        device: consuming FileDescriptor, _ negotiation: Negotiation, source: String, words: [String], leavesSetID: Bool = false,
        mapsDirectly: Bool = true, idlePolling: IdlePolling? = nil
    ) throws(Errno) -> Session {
        let options = sessionOptions(source, words, leavesSetID, mapsDirectly, idlePolling)
        let (interrupted, poll) = sessionCallbacks
        let session = try Session(
            operations: Self.operationTable, state: Unmanaged.passUnretained(self).toOpaque(), options: options, device: device,
            negotiation: negotiation, workerLimit: plan.workers, interrupted: interrupted, pollWorkers: poll)
        adopt(session, words)
        return session
    }

    /// Starts serving.
    public func begin() throws(Errno) {
        ReserveThreads.prepare()
        departures.start(for: self)
        hostWatch?.start(for: self)
        oplocks?.start(for: self)
        if kernelOpens { cachedDescriptors.start(for: self) }
        try session?.start()
    }

    private func sessionOptions(
        _ source: String, _ words: [String], _ leavesSetID: Bool, _ mapsDirectly: Bool, _ idlePolling: IdlePolling?
    ) -> SessionOptions {
        clinux_keep_memory_small()
        var options = options(source: source, words: words)
        options.killsSetID = !leavesSetID
        options.mapsDirectly = mapsDirectly
        options.idlePolling = idlePolling
        options.forwardsLocks = !kernelOpens
        // Of a file with write-back it changes nothing. A listing begins with a look at the directory's times then.
        if kernelOpens { options.checkData = true }
        options.supervised = records == nil ? nil : supervisor?.page
        return options
    }

    private var sessionCallbacks: (interrupted: @Sendable (UInt64) -> Void, poll: @Sendable () -> Bool) {
        (
            { [waiting, workerQuota, leases, refusedReadThrottle] unique in
                waiting.cancel(unique)
                workerQuota.cancel(unique)
                leases.cancel(unique)
                refusedReadThrottle.cancel(unique)
            },
            { [workerQuota, leases, closeQueue, refusedReadThrottle] in
                let (isCongested, isWaiting) = (workerQuota.poll(), leases.poll())
                let isRefused = refusedReadThrottle.poll()
                return closeQueue.poll() || isCongested || isWaiting || isRefused
            }
        )
    }

    private func adopt(_ session: Session, _ words: [String]) {
        workerQuota.hasSeveralUsers = words.contains("allow_other")
        mounted.withLock { $0 = session }
        locks.host = self
    }

    /// Without a mount: whoever calls gives the session its requests, and reads its answers from the other end of `exchange`. Nobody watches for
    /// changes on the host.
    package func beginUnmounted(exchange: Int32) throws(Errno) -> Session {
        let session = try Session(
            operations: Self.operationTable, state: Unmanaged.passUnretained(self).toOpaque(), options: options(source: "", words: []),
            exchange: exchange, workerLimit: Self.workerLimit, interrupted: { [waiting] in waiting.cancel($0) })
        mounted.withLock { $0 = session }
        locks.host = self
        return session
    }

    private func options(source: String, words: [String]) -> SessionOptions {
        SessionOptions(
            source: source, mountWords: words, writeBack: policy.writeBack, checkData: policy.checkData, killsSetID: true,
            mapsDirectly: true)
    }
}

/// For how long the kernel may answer by itself.
struct CachePolicy: Sendable {
    /// Seconds that names and attributes hold.
    let timeout: Double
    /// The same in nanoseconds.
    let timeoutNanoseconds: Int64
    /// Seconds that a name holds before the kernel asks whether it still is there.
    let nameTimeout: Double
    /// Seconds that the absence of a name holds.
    let negativeTimeout: Double
    let writeBack: Bool
    let checkData: Bool
    /// Cached data is looked at anew before each read, and dropped at each opening.
    let distrustsData: Bool
    /// The backing files may be changed beside this mount, so whoever takes a lock must see what others wrote before.
    let sharesLocks: Bool

    init(_ mode: CacheMode) {
        switch mode {
        // Under the second that is promised, with room for the look itself.
        case .shared: (timeout, negativeTimeout, writeBack, checkData, distrustsData) = (0.9, 0.9, false, true, false)
        // The absence of a name is what is told least surely, and is asked for again soon.
        case .exclusive: (timeout, negativeTimeout, writeBack, checkData, distrustsData) = (86_400, 60, true, false, false)
        case .none: (timeout, negativeTimeout, writeBack, checkData, distrustsData) = (0, 0, false, true, true)
        }
        // Where names cannot all be taken back at once, a change that was missed costs a minute.
        nameTimeout = mode == .exclusive && KernelRelease.current.map { $0 < (6, 16) } ?? true ? 60 : timeout
        sharesLocks = mode != .exclusive
        timeoutNanoseconds = Int64(exactly: (timeout * 1e9).rounded()) ?? 0
    }
}
