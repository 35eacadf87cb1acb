import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The identity of a process, distinct from later ones with the same pid.
public struct ProcessIdentity: Hashable, Sendable {
    public let pid: Int32
    /// Start time in ticks since boot, field 22 of /proc/PID/stat.
    public let start: UInt64
    public let bootID: String

    public init(pid: Int32, start: UInt64, bootID: String) {
        self.pid = pid
        self.start = start
        self.bootID = bootID
    }

    /// The running process with this pid, or nil if there is none, or it is defunct: only waiting
    /// for its parent, or for a thread in a system call that no signal ends.
    public init?(running pid: Int32) {
        guard let identity = ProcessIdentity.inspect(pid), !ProcessState.isOver(pid) else { return nil }
        self = identity
    }

    private static func inspect(_ pid: Int32) -> ProcessIdentity? {
        // By now another process may have the pid, and be one that cannot be inspected.
        ProcessInspector.inspect([pid]) { pid, _ in ProcessIdentity(reading: pid) }.found[pid] ?? nil
    }

    private init?(reading pid: Int32) {
        guard case .seen(let identity) = ProcessIdentity.inspection(of: pid) else { return nil }
        self = identity
    }

    private enum Inspection {
        case seen(ProcessIdentity)
        case gone
        /// It could not be inspected: out of descriptors or memory.
        case unknown
    }

    private static func inspection(of pid: Int32) -> Inspection {
        let text: [UInt8]
        do throws(Errno) {
            text = try File.contents(of: Array("/proc/\(pid)/stat".utf8))
        } catch {
            return [EMFILE, ENFILE, ENOMEM].contains(error.rawValue) ? .unknown : .gone
        }
        // Fields are counted from 3, the state: the name before it may contain anything.
        guard let fields = ProcessIdentity.fields(text), let start = UInt64(fields[19]) else { return .gone }
        guard let boot = Boot.known else { return .unknown }
        return .seen(ProcessIdentity(pid: pid, start: start, bootID: boot))
    }

    /// A child of this process that never calls exec, so that nothing can block its inspection.
    init?(child pid: Int32) { self.init(reading: pid) }

    /// Whether it runs, or that is unknown: on a busy machine the inspection may time out, and this process may be out of descriptors.
    public var mayRun: Bool {
        switch ProcessInspector.inspect([pid], { pid, _ in ProcessIdentity.inspection(of: pid) }).found[pid] {
        case .seen(let identity): identity == self && !ProcessState.isOver(pid)
        case .gone: false
        case .unknown, nil: true
        }
    }

    /// Waits until it has ended.
    func awaitEnd() {
        while mayRun {
            // As long as the handle is open no other process has the number.
            if let handle = try? ProcessHandle(pid), mayRun {
                if handle.hasEnded(within: -1) { return }
            } else {
                usleep(100_000)
            }
        }
    }

    /// This process.
    public static var own: ProcessIdentity? { ProcessIdentity(reading: getpid()) }

    /// Whether it was seen running. To decide whether a mount is dead, use `mayRun`.
    public var isRunning: Bool { ProcessIdentity(running: pid) == self }

    /// Whether it exists and is known never to run again, even if it still has files open:
    /// connections to its sockets are accepted and never answered. Unlike a missing process, that
    /// does not depend on the PID namespace.
    public var isDefunct: Bool { ProcessState.isOver(pid) && bootID == Boot.id && ProcessIdentity.inspect(pid) == self }

    private static func fields(_ stat: [UInt8]) -> [String]? {
        guard let name = stat.lastIndex(of: UInt8(ascii: ")")) else { return nil }
        let fields = stat[(name + 1)...].split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
        return fields.count >= 20 ? fields : nil
    }
}

extension GrantStore {
    /// Removes the record of a mount whose daemon has died, and the files that it left.
    func forget(_ record: MountRecord) throws(GrantError) {
        try unregister(record.id)
        // It removes only a name in the store's own directory, even if the record contains another
        // path.
        if !record.socket.utf8.contains(UInt8(ascii: "/")) { unlink(runDirectory + "/" + record.socket) }
        MountRecord.forgetSupervisor(of: record.id, in: runDirectory)
    }
}

extension MountRecord {
    /// The daemon of the mount.
    public var process: ProcessIdentity { ProcessIdentity(pid: pid, start: processStart, bootID: bootID) }
}

extension MountRecord {
    /// Returns the mount in the mount table, if it is the topmost one at its mountpoint.
    package func entry(in table: MountTable) -> MountEntry? {
        guard let entry = table.entry(mountpoint: mountpoint), entry.type == GrantAdministrator.filesystemType,
            connection.map({ $0.device == entry.device }) ?? true
        else { return nil }
        return entry
    }

    /// The device number of its filesystem, wherever that is mounted by now, or nil if unknown.
    package func device(in table: MountTable) -> DeviceNumber? { connection?.device ?? entry(in: table)?.device }
}
