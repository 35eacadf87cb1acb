import CGrantSystem
import GrantCommandLine
import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

/// Takes over the mount of a dead daemon: docs/decisions/succession.md.
struct Recovering {
    let store: GrantStore
    /// The record of the dead daemon, or of one that has tried before.
    let record: MountRecord

    /// `socket`: to the supervisor. Returns the exit status when the mount has ended.
    static func run(store: GrantStore, record: MountRecord, socket: Int32) throws(GrantError) -> Int32 {
        let left: CrashedDescriptors
        do throws(Errno) {
            left = try CrashedDescriptors(socket: socket)
        } catch {
            throw GrantError(.system, "what the daemon that has died left cannot be had", cause: error.description)
        }
        let recovering = Recovering(store: store, record: record)
        let takingOver = TakingOver(store: store, record: record)
        let taken: TakingOver.Taken
        recovering.fail(at: "begin")
        do {
            taken = try recovering.take(left, takingOver)
        } catch {
            let failure = error as? GrantError ?? GrantError(.system, "\(error)")
            SystemLog.open(isForeground: false)
            SystemLog.write(
                .error,
                "view “\(record.view)” at \(Terminal.visible(record.mountpoint)): its daemon has died, and no other one can go on: \(failure)"
            )
            left.end(isServing: false)
            throw failure
        }
        recovering.fail(at: "taken")
        // After `take` the dead daemon's state is outdated. Armed before, because there must be no moment in which this daemon's death
        // goes unnoticed.
        taken.recovery?.arm(true)
        recovering.fail(at: "armed", crashes: left.page.pointee.crashes)
        guard left.take() else { _exit(1) }
        recovering.fail(at: "mine")
        taken.mount.begin()
        left.end(isServing: true)
        ServiceManager.handOver(to: getpid())
        return try takingOver.serve(
            taken, hasDied: true,
            before: {
                // Requests that this daemon had received by then would come twice.
                guard let session = taken.mounted.files.session, session.canResend else { return }
                let result = session.requestResend()
                if result < 0 {
                    SystemLog.write(.error, "the kernel does not repeat the requests in flight: \(Errno.number(of: result))")
                }
            },
            begun: {
                recovering.fail(at: "begun")
                taken.mounted.files.session?.answerRefused()
            },
            { _ in })
    }

    private func take(_ left: CrashedDescriptors, _ takingOver: TakingOver) throws -> TakingOver.Taken {
        _ = DescriptorLimit.raise()
        let page = left.page
        let fixedFile = try left.take(page.pointee.state)
        var fixed = try HandoverReader(file: fixedFile, count: Int(clamping: page.pointee.state_bytes), descriptors: [])
        let head = try HandoverHead(from: &fixed)
        guard head.record == record.id else { throw Errno(EBADMSG) }
        let listener: Int32 = try fixed.take()
        let unchanging = try CrashedMount.Fixed(from: &fixed)
        let grants = Dictionary(try store.grants(view: head.view).map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        let now = Instant(nanoseconds: Clock.realtime)
        let mount = try CrashedMount(left) { id, activation in
            grants[id].map { $0.activation == activation && $0.state(at: now) == .active } ?? false
        }
        var writer = HandoverWriter()
        try MountedView.write(mount, unchanging, grants, to: &writer)
        // Claims are recovered separately, and the counters are lost.
        writer.put(flag: false)
        writer.put(flag: false)
        let file = try MemoryFile.of([])
        try writer.write(into: file)
        let (count, numbers) = (writer.count, writer.descriptors)
        var reader = try HandoverReader(file: file, count: count, descriptors: try left.take(numbers))
        reader.version = fixed.version
        let taken = try takingOver.make(head, try left.take(listener), &reader, previous: page)
        try taken.claims.restore(try ClaimRecords.read(from: left), taken.server) { (numbers) throws(Errno) in try left.take(numbers) }
        return taken
    }

    /// For tests: dies or sleeps, as a daemon can at any moment. A comma-separated list says what happens where.
    ///
    /// `crashes`: how many daemons have died so far, where that matters.
    private func fail(at stage: String, crashes: UInt32 = 0) {
        guard let setting = InjectedFault.deathInRecovery.setting else { return }
        let faults = setting.split(separator: ",").map(String.init)
        if faults.contains("stuck " + stage) { while true { sleep(1_000) } }
        if faults.contains("first " + stage), crashes == 1 { kill(getpid(), SIGKILL) }
        if faults.contains(stage) { kill(getpid(), SIGKILL) }
        if faults.contains("slow " + stage) { usleep(1_500_000) }
        // Waits as long as the file exists, after creating the other one.
        if faults.contains("held " + stage), access(store.directory + "/hold", F_OK) == 0 {
            close(creat(store.directory + "/held", 0o600))
            while access(store.directory + "/hold", F_OK) == 0 { usleep(10_000) }
        }
    }
}
