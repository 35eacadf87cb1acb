import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// One process, told from later ones with the same number.
public struct ProcessIdentity: Hashable, Sendable {
    public let pid: Int32
    /// Ticks since boot, field 22 of /proc/PID/stat.
    public let start: UInt64
    public let bootID: String

    public init(pid: Int32, start: UInt64, bootID: String) {
        self.pid = pid
        self.start = start
        self.bootID = bootID
    }

    /// The process of this number as it is now; nil when there is none, or when nothing of it will run any more: all that is left waits for its
    /// parent, or for a thread that stands in a call which no signal ends.
    public init?(running pid: Int32) {
        guard let identity = ProcessIdentity.look(at: pid), !ProcessState.isOver(pid) else { return nil }
        self = identity
    }

    private static func look(at pid: Int32) -> ProcessIdentity? {
        // Another process may have the number by now, and be one at which nobody can look.
        ProcessLook.at([pid]) { ProcessIdentity(reading: $0) }.found[pid] ?? nil
    }

    private init?(reading pid: Int32) {
        guard case .seen(let identity) = ProcessIdentity.sight(of: pid) else { return nil }
        self = identity
    }

    private enum Sight {
        case seen(ProcessIdentity)
        case gone
        /// Nobody could look: descriptors or memory have run out.
        case unknown
    }

    private static func sight(of pid: Int32) -> Sight {
        let text: [UInt8]
        do throws(Errno) {
            text = try File.contents(of: Array("/proc/\(pid)/stat".utf8))
        } catch {
            return [EMFILE, ENFILE, ENOMEM].contains(error.rawValue) ? .unknown : .gone
        }
        // Fields are counted from 3, the state: the name before it may hold anything.
        guard let fields = ProcessIdentity.fields(text), let start = UInt64(fields[19]) else { return .gone }
        return .seen(ProcessIdentity(pid: pid, start: start, bootID: Boot.id))
    }

    /// A child of this process, which never runs another program: nobody holds up who looks at it.
    init?(child pid: Int32) { self.init(reading: pid) }

    /// Whether it runs, or it cannot be told: on a busy machine a look may take longer than it is waited for, and this process may have no descriptor left to look with.
    public var mayRun: Bool {
        switch ProcessLook.at([pid], { ProcessIdentity.sight(of: $0) }).found[pid] {
        case .seen(let identity): identity == self && !ProcessState.isOver(pid)
        case .gone: false
        case .unknown, nil: true
        }
    }

    /// This process.
    public static var own: ProcessIdentity? { ProcessIdentity(reading: getpid()) }

    /// Whether it was seen to run. Not whether a mount is dead: `mayRun`.
    public var isRunning: Bool { ProcessIdentity(running: pid) == self }

    /// Whether it is known to be there and to run never more, whatever it still has open: what it listens at takes connections that nobody answers.
    /// Other than what does not run, this is no matter of the PID namespace that one looks from.
    public var isOver: Bool { ProcessState.isOver(pid) && bootID == Boot.id && ProcessIdentity.look(at: pid) == self }

    private static func fields(_ stat: [UInt8]) -> [String]? {
        guard let name = stat.lastIndex(of: UInt8(ascii: ")")) else { return nil }
        let fields = stat[(name + 1)...].split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
        return fields.count >= 20 ? fields : nil
    }
}

extension GrantStore {
    /// Forgets the mount of a daemon that has died, with the socket that it left.
    func forget(_ record: MountRecord) throws(GrantError) {
        try unregister(record.id)
        // A name in the store's own directory, whatever the record says.
        if !record.socket.utf8.contains(UInt8(ascii: "/")) { unlink(runDirectory + "/" + record.socket) }
        MountRecord.forgetSupervisor(of: record.id, in: runDirectory)
    }
}

extension MountRecord {
    /// The daemon of the mount.
    public var process: ProcessIdentity { ProcessIdentity(pid: pid, start: processStart, bootID: bootID) }
}

extension MountRecord {
    /// The mount at its mountpoint, if that is its own and on top there.
    func entry(in table: MountTable) -> MountEntry? {
        guard let entry = table.entry(mountpoint: mountpoint), entry.type == GrantAdministrator.filesystemType,
            connection.map({ $0.device == entry.device }) ?? true
        else { return nil }
        return entry
    }

    /// The number of its filesystem, wherever that is mounted by now; nil when it is not known.
    func device(in table: MountTable) -> DeviceNumber? { connection?.device ?? entry(in: table)?.device }
}
