import GrantModel
import GrantStore
import Glibc
import GrantSystem

/// What is left of a mount whose daemon has ended without withdrawing everything first. No daemon will ever make the kernel forget what it has
/// cached of such a mount: it can be read on as long as somebody holds it.
public struct Remains: Sendable {
    public let record: MountRecord
    /// Where it stands in this namespace, dead.
    public let standsAt: [UInt8]?
    /// Who holds something of it, this process left out: it ends by itself.
    public let holders: [Holder]
    /// Who may hold something of it as well, and could not be looked at.
    public let unseen: [UnseenProcess]
    /// Whether somebody holds something who is not among the holders: the connection is there, and nothing that can be seen keeps it.
    public let hasOthers: Bool
    /// Whether the device is the mount's for certain. Else another filesystem may have come by its number, and its users be mistaken for holders.
    let isCertain: Bool
    let device: DeviceNumber

    /// Whether the holder of something on this device may hold something of this mount: not of another filesystem that has its number by now, and not
    /// its root alone.
    static func mayHold(_ holder: Holder, _ record: MountRecord) -> Bool {
        guard let generation = record.connection?.generation else { return true }
        return holder.marks.contains { $0.generation == nil || $0.generation == generation }
    }

    /// Whether somebody holds something of it, as far as can be told: what cannot be told counts as held.
    public var isHeld: Bool { !holders.isEmpty || hasOthers || !unseen.isEmpty }

    /// In words, for people; nil when nobody holds anything.
    public var explanation: String? {
        guard isHeld else { return nil }
        let held = "its daemon has ended, and what the kernel has cached can be read on by "
        let seen = holders.map { (pid: $0.pid, command: $0.command) }
        let others = unseen.map { (pid: $0.pid, command: $0.command) }
        if !seen.isEmpty { return held + Remains.listing(seen) }
        if hasOthers { return held + "somebody who cannot be seen from here: the connection \(device.minor) is there still" }
        return "its daemon has ended, and the kernel lets nobody see whether what it has cached is held by \(Remains.listing(others))"
    }

    private static func listing(_ processes: [(pid: Int32, command: [UInt8])]) -> String {
        let names = processes.prefix(10).map { "\($0.pid) (\(String(decoding: $0.command, as: UTF8.self)))" }.joined(separator: ", ")
        let more = processes.count > 10 ? " and \(processes.count - 10) more" : ""
        return (processes.count == 1 ? "the process " : "the processes ") + names + more
    }
}

extension GrantStore {
    /// What is left of recorded mounts whose daemons have ended. Those of which nothing is left are forgotten.
    ///
    /// What is held is found by the number of the filesystem, and never by what stands at the mountpoint.
    public func remains(of dead: [MountRecord]) throws(GrantError) -> [Remains] {
        if dead.isEmpty { return [] }
        // Whose daemon has ended in order meanwhile is not on record any more, and nothing is left of it.
        let all = try mounts()
        // A mount that another daemon has taken over is on record as that one's before the old one ends.
        let records = dead.filter { record in
            all.contains { $0.id == record.id && $0.process == record.process } && !record.isSupervised(in: runDirectory)
        }
        for record in records { record.cutIfOver(all, in: runDirectory) }
        var found = look(at: records, all)
        // The kernel takes a filesystem apart a moment after its last user has gone.
        let deadline = Clock.monotonic + 1_000_000_000
        while found.contains(where: \.hasOthers), Clock.monotonic < deadline {
            usleep(20_000)
            found = look(at: records, all)
        }
        for record in records where !found.contains(where: { $0.record.id == record.id }) {
            // Best effort: the next command tries again.
            try? forget(record)
        }
        return found
    }

    private func look(at records: [MountRecord], _ all: [MountRecord]) -> [Remains] {
        let table = (try? MountTable.current()) ?? MountTable(entries: [])
        let suspects = records.compactMap { DeadConnection($0, table, all) }
        let search = Holder.search(of: Set(suspects.map(\.device)))
        return suspects.compactMap { suspect in
            let holders = (search.holders[suspect.device] ?? []).filter { $0.pid != getpid() && Remains.mayHold($0, suspect.record) }
            return suspect.remains(heldBy: holders, unseen: search.unseen)
        }
    }
}

/// The connection of a mount whose daemon has ended, as far as it may be there.
private struct DeadConnection {
    let record: MountRecord
    let device: DeviceNumber
    let presence: FUSEConnection.Presence
    let standing: MountEntry?

    /// nil when it is gone.
    init?(_ record: MountRecord, _ table: MountTable, _ all: [MountRecord]) {
        guard record.bootID == Boot.id else { return nil }
        self.record = record
        let views = table.entries.filter { $0.type == GrantAdministrator.filesystemType }
        guard let connection = record.connection else {
            // Nobody had opened anything, or an older program has mounted it: what stands there and is of nobody else is this one.
            let known = Set(all.compactMap(\.connection?.device))
            guard let entry = views.last(where: { $0.mountpoint == record.mountpoint }), !known.contains(entry.device) else { return nil }
            guard (try? Mountpoint(entry.mountpoint))?.isDead(ifSilent: record.process.isOver) == true else { return nil }
            (device, presence, standing) = (entry.device, .unknown, entry)
            return
        }
        device = connection.device
        presence = connection.presence
        let mayStand = presence == .there || connection.mount.map { MountNumber.isThere($0) != false } ?? true
        standing = mayStand ? views.last { [device] in $0.device == device } : nil
        if presence == .gone { return nil }
        guard presence == .unknown else { return }
        // A filesystem of another type, or the mount of a daemon that runs, has the number: then this one is gone.
        let hasOther = table.entries.contains { [device] in $0.device == device && $0.type != GrantAdministrator.filesystemType }
        let isServed = all.contains { [device] in $0.id != record.id && $0.connection?.device == device && $0.process.mayRun }
        if hasOther || isServed { return nil }
    }

    /// nil when nothing is left.
    func remains(heldBy holders: [Holder], unseen: [UnseenProcess]) -> Remains? {
        let marks = holders.reduce(into: Set<Holder.Mark>()) { $0.formUnion($1.marks) }
        let (number, generation) = (record.connection?.mount, record.connection?.generation)
        let isProven = marks.contains { mark in
            (number != nil && mark.mount == number) || (generation != nil && mark.generation == generation)
        }
        let isCertain = presence == .there || isProven || number.map { MountNumber.isThere($0) == true } ?? false
        let isNowhere = standing == nil && holders.isEmpty
        if isNowhere, presence != .there, unseen.isEmpty { return nil }
        // Where it stands in another namespace alone, that is what keeps it.
        let hasOthers = isNowhere && presence == .there && !NamespaceScan.isMounted(device)
        return Remains(
            record: record, standsAt: standing?.mountpoint, holders: holders, unseen: unseen, hasOthers: hasOthers, isCertain: isCertain,
            device: device)
    }
}

/// The mount tables of all processes that can be looked at.
private enum NamespaceScan {
    /// Whether a filesystem is mounted in any mount namespace.
    static func isMounted(_ device: DeviceNumber) -> Bool {
        let pids = ((try? DirectoryNames.of("/proc".utf8)) ?? []).compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
        let seen = Lock<Set<[UInt8]>>([])
        let outcome = ProcessLook.at(pids) { pid in
            let process = Array("/proc/\(pid)".utf8)
            guard let namespace = try? CanonicalPath.target(of: process + Array("/ns/mnt".utf8)),
                seen.withLock({ $0.insert(namespace).inserted }), let text = try? File.contents(of: process + Array("/mountinfo".utf8))
            else { return false }
            return MountTable(parsing: text).entries.contains { $0.device == device }
        }
        return outcome.found.values.contains(true)
    }
}
