import CGrantSystem
import GrantCoordinator
import GrantFUSE
import GrantLocks
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

/// The filesystem of one mount: the state on which every operation works.
///
/// Locking: operations take no lock of this type. `names` and `locks` guard themselves.
public final class ViewFS: @unchecked Sendable {
    // Sendable: everything is fixed after `init` except the session, which has a lock.
    public let coordinator: Coordinator
    public let tree: NodeTree
    public let files: OpenFiles
    public let directories: OpenDirectories
    private let plan: DescriptorPlan
    public let names: VirtualDirectories
    let locks: LockTable
    let waiting = ClaimWaitQueue()
    let claimInvalidator = ClaimInvalidator()
    /// The offered scopes, and the requests that wait for a person's answer.
    public let offers = OfferQueue()
    let workerQuota = WorkerQuota()
    let leases = LeaseWaitQueue()
    let closeQueue = CloseQueue()
    let refusedReadThrottle = RefusedReadThrottle()
    let policy: CachePolicy
    /// Whether the kernel opens and locks files and directories without sending a request.
    ///
    /// See docs/decisions/caching.md. Set before the first request.
    @exclusivity(unchecked)
    public internal(set) nonisolated(unsafe) var kernelOpens = false
    let cachedDescriptors: CachedDescriptors
    /// The thread whose listing of the root keeps the kernel from caching that listing.
    ///
    /// See `keepRootListingUncached`.
    let rootLister = Atomic<Int32>(-1)
    /// The number of requests that wait for the kernel to write back a file.
    let seekers = Atomic<Int>(0)
    /// Watches the host for changes.
    let hostWatch: HostWatch
    /// It is nil if only this mount changes files, or if locks are always handled in full.
    let oplocks: Oplocks?
    let handleBases = HandleBases()
    let namesLocks = NamesLocks()
    /// Records opens and changes, if the mount was started with an audit trail.
    public let audit: AuditTrail?
    let lastRefused = LastRefused()
    let ruleRefusals = RuleRefusals()
    let lastCalls = LastCalls()
    let lengthenings = Lengthenings()
    let starvedThreads = StarvedThreads()
    /// Whether a file with a set-gid bit and without group execution was ever met.
    ///
    /// Members of the group keep that bit when they write (fs/attr.c, setattr_should_drop_sgid).
    /// Requests do not carry the caller's groups. Until such a file is met, no write has to check.
    let hasPlainSetGID = Atomic<Bool>(false)
    let droppedWrites = DroppedWrites()
    let lostWrites = LostWrites()
    /// Whether reading files leaves their access times unchanged. The next value: listing
    /// directories.
    let leavesAccessTimes = Atomic<Bool>(false)
    let leavesDirectoryAccessTimes = Atomic<Bool>(false)
    let departures = Departures()
    /// Whether a file was ever reached through grants of several views.
    ///
    /// Changes made through one view must then be relayed to the others.
    let haveViewsOverlapped = Atomic<Bool>(false)
    /// The state that the next daemon needs if this one dies. It is nil if no daemon follows.
    public let records: RecoveryRecords?
    private let supervisor: Supervisor?
    /// Pauses the background threads.
    public let pauseGate = PauseGate()
    /// The generation of every node except the root.
    ///
    /// It is part of the file handles that the kernel makes for descriptors. So it tells which
    /// mount a held descriptor belongs to, even long after this process has ended.
    public let generation: UInt32
    private let mounted = Lock<Session?>(nil)
    /// Bytes of tables freed since the C library last returned memory to the kernel. See `trim`.
    let trimmed = Atomic<Int>(0)
    static let worthTrimming = 1 << 20
    /// The requests taken at the last check, and when memory was last returned.
    let takenBefore = Atomic<UInt32>(0)
    let takenAtTrim = Atomic<UInt32>(0)
    /// Fewer requests in a second count as none. More since the last trim may have left memory
    /// behind.
    static let (fewRequests, manyRequests): (UInt32, UInt32) = (100, 10_000)
    /// For tests: makes statfs(2) of a file trap, with or without a lock held.
    let trap = InjectedFault.trap.setting.map { $0 == "locked" ? TestTrap.locked : .free } ?? .none

    /// The number of nodes from which on the kernel evicts unused ones (`prune`).
    ///
    /// Fewer nodes are invalidated singly, which takes less time. Tests set another number.
    let prunedFrom = Int(truncatingIfNeeded: InjectedFault.prunedFrom.number ?? 256)
    /// What statx(2) has for owners and groups without a number, if the mount shows other owners than the host's.
    let unmapped: (user: UInt32, group: UInt32)?
    /// The number of withdrawals that currently make the kernel evict thousands of nodes.
    let prunings = Atomic<Int>(0)

    enum TestTrap { case none, free, locked }

    /// The session of the mount. nil until the view is mounted.
    ///
    /// Takes a lock, so no request calls it.
    public var session: Session? { mounted.withLock { $0 } }

    /// The limit of workers. It is lower if the process may have few descriptors.
    ///
    /// Each hung request occupies a worker until its grant has used up its share (`WorkerQuota`).
    public static let workerLimit = 1000
    /// The slots of the threads that retry lock requests.
    ///
    /// So requests can wait for locks in as many grants at once.
    static let lockSlots = workerLimit..<workerLimit + 128

    /// Makes a filesystem that is not mounted yet.
    ///
    /// - Parameters:
    ///   - descriptorLimit: How many descriptors the process may have. `DescriptorPlan` divides
    ///     them.
    ///   - holdsOpenings: Whether opens on the host wait while a file is locked, so that its locks
    ///     are cheap (`Oplocks`).
    ///   - generation: The generation of the daemon whose mount this one takes over. nil for a new
    ///     mount.
    ///   - supervisor: Starts the next daemon when this one dies.
    ///   - nursery: A directory at the root in which each name leads to a directory, empty until
    ///     grants are shown in it.
    ///   - fixed: A directory at the root that exists before any grant is shown in it.
    ///   - unmapped: See `OwnerNamespace`.
    public init(
        cache: CacheMode, descriptorLimit: Int, audit: AuditTrail? = nil, holdsOpenings: Bool = true, generation: UInt32? = nil,
        supervisor: Supervisor? = nil, nursery: GrantName? = nil, fixed: GrantName? = nil, unmapped: (user: UInt32, group: UInt32)? = nil
    ) {
        self.unmapped = unmapped
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
        names = VirtualDirectories(nursery: nursery, fixed: fixed)
        locks = LockTable(tree: tree, records: records, slots: Self.lockSlots)
        policy = CachePolicy(cache)
        hostWatch = HostWatch()
        oplocks = cache == .shared && holdsOpenings ? try? Oplocks(writers: locks.refreshers) : nil
        waiting.view = self
        offers.view = self
        workerQuota.view = self
        leases.view = self
        closeQueue.view = self
        refusedReadThrottle.view = self
        tree.close = { [unowned self] reader, writer, isDirectory in closeCached(reader, writer, isDirectory: isDirectory) }
    }

    /// Decides whether the kernel opens files without a request.
    ///
    /// It may do so only if no promise depends on which process has which file open. Call it before
    /// the mount, after the first grants are shown.
    ///
    /// - Parameters:
    ///   - hasMandatory: Whether claims bind operations through the mount, which is checked at
    ///     opens.
    ///   - hasSeveralViews: Whether other directories than the root can be listed by programs of
    ///     every view. Only the root's listing is kept out of the kernel's cache
    ///     (`keepRootListingUncached`).
    public func letKernelOpen(hasMandatory: Bool, hasSeveralViews: Bool) {
        let hasServer = names.open.contains { $0.scope.nodes.usesCallerGroups }
        kernelOpens = policy.writeBack && !hasSeveralViews && audit == nil && records == nil && !hasServer && !hasMandatory
    }

    /// Mounts the view at `mountpoint`, a path, and starts serving it.
    ///
    /// - Parameters:
    ///   - leavesSetID: Leaves set-id bits to the kernel. Kernels before 5.11 cannot leave them to
    ///     the daemon.
    ///   - mapsDirectly: Lets programs map files opened past the cache, if the kernel can do that
    ///     (6.6).
    ///   - idlePolling: See `SessionOptions`.
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

    /// Takes over the mount of a paused daemon. `begin` continues it.
    ///
    /// - Parameters:
    ///   - device: The paused daemon's FUSE device.
    ///   - negotiation: The features that the paused daemon agreed on with the kernel (`Session`).
    ///
    /// The other parameters are those of `mount`.
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

    /// Starts the background threads and serves requests.
    public func begin() throws(Errno) {
        ReserveThreads.prepare()
        departures.start(for: self)
        hostWatch.start(for: self)
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
        // Changes nothing for a file with write-back. A listing then begins with a check of the
        // directory's times.
        if kernelOpens { options.checkData = true }
        options.supervised = records == nil ? nil : supervisor?.page
        return options
    }

    private var sessionCallbacks: (interrupted: @Sendable (UInt64) -> Bool, poll: @Sendable () -> Bool) {
        (
            { [waiting, offers, workerQuota, leases, refusedReadThrottle] unique in
                if offers.survives(unique) { return false }
                waiting.cancel(unique)
                workerQuota.cancel(unique)
                leases.cancel(unique)
                refusedReadThrottle.cancel(unique)
                return true
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

    /// Serves without a mount, and without watching the host for changes.
    ///
    /// The caller sends the session its requests, and reads its replies, at the other end of
    /// `exchange`.
    package func beginUnmounted(exchange: Int32) throws(Errno) -> Session {
        let session = try Session(
            operations: Self.operationTable, state: Unmanaged.passUnretained(self).toOpaque(), options: options(source: "", words: []),
            exchange: exchange, workerLimit: Self.workerLimit,
            interrupted: { [waiting] in
                waiting.cancel($0)
                return true
            })
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

/// How long the kernel may use what it caches.
struct CachePolicy: Sendable {
    /// Seconds for which names and attributes are valid.
    let timeout: Double
    /// The same in nanoseconds.
    let timeoutNanoseconds: Int64
    /// Seconds for which a name is valid before the kernel revalidates it.
    let nameTimeout: Double
    /// Seconds for which a negative entry is valid.
    let negativeTimeout: Double
    let writeBack: Bool
    let checkData: Bool
    /// Whether cached data is revalidated before each read, and dropped at each open.
    let distrustsData: Bool
    /// Whether the backing files may be changed outside this mount.
    ///
    /// A process that takes a lock must then see all earlier writes.
    let sharesLocks: Bool

    init(_ mode: CacheMode) {
        switch mode {
        // Below the promised second, with time for the check itself.
        case .shared: (timeout, negativeTimeout, writeBack, checkData, distrustsData) = (0.9, 0.9, false, true, false)
        // A negative entry is the least certain, so the kernel looks it up again soon.
        case .exclusive: (timeout, negativeTimeout, writeBack, checkData, distrustsData) = (86_400, 60, true, false, false)
        case .none: (timeout, negativeTimeout, writeBack, checkData, distrustsData) = (0, 0, false, true, true)
        }
        // On kernels that cannot expire all names at once, a missed change shows after a minute.
        nameTimeout = mode == .exclusive && KernelRelease.current.map { $0 < (6, 16) } ?? true ? 60 : timeout
        sharesLocks = mode != .exclusive
        timeoutNanoseconds = Int64(exactly: (timeout * 1e9).rounded()) ?? 0
    }
}
