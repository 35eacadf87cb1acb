import GrantModel
import GrantStore
import Glibc
import GrantSystem

/// A mount whose daemon died without withdrawing everything. No daemon will ever make the kernel drop what it has cached of the mount:
/// that stays readable as long as a process holds it.
public struct DeadMount: Sendable {
    public let record: MountRecord
    /// Where it is still mounted in this namespace.
    public let mountedAt: [UInt8]?
    /// The processes that hold something of it, without this one, which ends by itself.
    public let holders: [Holder]
    /// Processes that may hold something too, and could not be inspected.
    public let unseen: [UnseenProcess]
    /// Whether something is held by unknown holders: the FUSE connection exists, and nothing visible keeps it.
    public let hasOthers: Bool
    /// Whether the device is certainly the mount's. Otherwise another filesystem may have the same number by now, and its users be
    /// mistaken for holders.
    let isCertain: Bool
    let device: DeviceNumber

    /// Whether a holder of something on this device may hold something of this mount: not of another filesystem that has the number by
    /// now, and not only the root.
    static func mayHold(_ holder: Holder, _ record: MountRecord) -> Bool {
        guard let generation = record.connection?.generation else { return true }
        return holder.marks.contains { $0.generation == nil || $0.generation == generation }
    }

    /// Whether a process holds something of it. If that is unknown, it counts as held.
    public var isHeld: Bool { !holders.isEmpty || hasOthers || !unseen.isEmpty }

    /// Describes the holders, for people, or nil if there are none.
    public var explanation: String? {
        guard isHeld else { return nil }
        let held = "its daemon has ended, and what the kernel has cached can be read on by "
        let seen = holders.map { (pid: $0.pid, command: $0.command) }
        let others = unseen.map { (pid: $0.pid, command: $0.command) }
        if !seen.isEmpty { return held + DeadMount.listing(seen) }
        if hasOthers {
            return held + "a process that cannot be seen from here: connection \(device.minor) still exists"
        }
        if unseen.contains(where: \.wasSkipped) {
            return "its daemon has ended, and there was no time to see whether what the kernel has cached is held by "
                + "\(DeadMount.listing(others)): try a longer --timeout"
        }
        return "its daemon has ended, and the kernel does not show whether its cache is held by "
            + DeadMount.listing(others)
    }

    private static func listing(_ processes: [(pid: Int32, command: [UInt8])]) -> String {
        let names = processes.prefix(10).map { "\($0.pid) (\(String(decoding: $0.command, as: UTF8.self)))" }.joined(separator: ", ")
        let more = processes.count > 10 ? " and \(processes.count - 10) more" : ""
        return (processes.count == 1 ? "the process " : "the processes ") + names + more
    }
}

extension GrantStore {
    /// Returns the remains of recorded mounts whose daemons have ended. It removes the records of
    /// mounts without remains.
    ///
    /// Holders are found by the filesystem's device number, and never by the object at the
    /// mountpoint.
    ///
    /// `until`: a moment of `Clock.monotonic`. A process that was not inspected by then counts as a
    /// holder.
    public func deadMounts(of dead: [MountRecord], until deadline: Int64) throws(GrantError) -> [DeadMount] {
        if dead.isEmpty { return [] }
        // A daemon that has ended in order meanwhile is no longer recorded, and left nothing.
        let all = try mounts()
        // If another daemon took the mount over, it was recorded before the old one ended.
        let records = dead.filter { record in
            all.contains { $0.id == record.id && $0.process == record.process } && !record.isSupervised(in: runDirectory)
        }
        for record in records { record.abortIfDefunct(all, in: runDirectory) }
        var found = look(at: records, all, until: deadline)
        // The kernel tears a filesystem down a moment after its last user has gone.
        let last = min(deadline, Clock.monotonic + 1_000_000_000)
        while found.contains(where: \.hasOthers), Clock.monotonic < last {
            usleep(20_000)
            found = look(at: records, all, until: deadline)
        }
        for record in records where !found.contains(where: { $0.record.id == record.id }) {
            // Best effort: the next command tries again.
            try? forget(record)
        }
        return found
    }

    private func look(at records: [MountRecord], _ all: [MountRecord], until deadline: Int64) -> [DeadMount] {
        let table = (try? MountTable.current()) ?? MountTable(entries: [])
        let suspects = records.compactMap { DeadConnection($0, table, all) }
        let search = Holder.search(of: Set(suspects.map(\.device)), until: deadline)
        return suspects.compactMap { suspect in
            let users = (search.holders[suspect.device] ?? []).filter { $0.pid != getpid() }
            return suspect.deadMount(usedBy: users, unseen: search.unseen, until: deadline)
        }
    }
}

/// The FUSE connection of a mount whose daemon has died, if it may still exist.
private struct DeadConnection {
    let record: MountRecord
    let device: DeviceNumber
    let presence: FUSEConnection.Presence
    let standing: MountEntry?

    /// The result is nil if it does not exist any more.
    init?(_ record: MountRecord, _ table: MountTable, _ all: [MountRecord]) {
        // An unknown boot counts as this one: a mount of another boot would count as gone.
        guard Boot.known.map({ $0 == record.bootID }) ?? true else { return nil }
        self.record = record
        let views = table.entries.filter { $0.type == GrantAdministrator.filesystemType }
        guard let connection = record.connection else {
            // No file was ever opened, or an older program made the mount: a mount here that belongs to no other record is this one.
            let known = Set(all.compactMap(\.connection?.device))
            guard let entry = views.last(where: { $0.mountpoint == record.mountpoint }), !known.contains(entry.device) else { return nil }
            guard (try? Mountpoint(entry.mountpoint))?.isDead(ifSilent: record.process.isDefunct) == true else { return nil }
            (device, presence, standing) = (entry.device, .unknown, entry)
            return
        }
        device = connection.device
        presence = connection.presence
        let mayStand = presence == .there || connection.mount.map { MountNumber.isThere($0) != false } ?? true
        standing = mayStand ? views.last { [device] in $0.device == device } : nil
        if presence == .gone { return nil }
        guard presence == .unknown else { return }
        // A filesystem of another type, or the mount of a running daemon, has the number: then this one is gone.
        let hasOther = table.entries.contains { [device] in $0.device == device && $0.type != GrantAdministrator.filesystemType }
        let isServed = all.contains { [device] in $0.id != record.id && $0.connection?.device == device && $0.process.mayRun }
        if hasOther || isServed { return nil }
    }

    /// `users`: the processes with something on the device, if only the mount's root. Returns nil
    /// if nothing is left.
    func deadMount(usedBy users: [Holder], unseen: [UnseenProcess], until deadline: Int64) -> DeadMount? {
        let holders = users.filter { DeadMount.mayHold($0, record) }
        let marks = holders.reduce(into: Set<Holder.Mark>()) { $0.formUnion($1.marks) }
        let (number, generation) = (record.connection?.mount, record.connection?.generation)
        let isProven = marks.contains { mark in
            (number != nil && mark.mount == number) || (generation != nil && mark.generation == generation)
        }
        let isCertain = presence == .there || isProven || number.map { MountNumber.isThere($0) == true } ?? false
        let isNowhere = standing == nil && holders.isEmpty
        if isNowhere, presence != .there, unseen.isEmpty { return nil }
        // A process in its root, or a mount in another namespace, keeps it alive by itself.
        let hasOthers = isNowhere && presence == .there && users.isEmpty && !NamespaceScan.isMounted(device, until: deadline)
        return DeadMount(
            record: record, mountedAt: standing?.mountpoint, holders: holders, unseen: unseen, hasOthers: hasOthers, isCertain: isCertain,
            device: device)
    }
}

/// The mount tables of all processes that can be inspected.
private enum NamespaceScan {
    /// Whether a filesystem is mounted in any mount namespace.
    static func isMounted(_ device: DeviceNumber, until deadline: Int64) -> Bool {
        let pids = ((try? DirectoryNames.of("/proc".utf8)) ?? []).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
        let seen = Lock<Set<[UInt8]>>([])
        let outcome = ProcessInspector.inspect(pids, until: deadline) { pid, _ in
            let process = Array("/proc/\(pid)".utf8)
            guard let namespace = try? CanonicalPath.target(of: process + Array("/ns/mnt".utf8)),
                seen.withLock({ $0.insert(namespace).inserted }), let text = try? File.contents(of: process + Array("/mountinfo".utf8))
            else { return false }
            return MountTable(parsing: text).entries.contains { $0.device == device }
        }
        return outcome.found.values.contains(true)
    }
}
