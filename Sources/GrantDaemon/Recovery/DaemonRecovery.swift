import CGrantSystem
import GrantCommandLine
import GrantControl
import Glibc
import GrantModel
import GrantMounts
import GrantStore
import GrantSystem
import GrantViewFS

/// A daemon's preparations for another one to take over when it dies (`-o recover`): docs/decisions/succession.md.
///
/// A supervisor shares its descriptors. What the next daemon has to know is in memory that has a descriptor, too.
final class DaemonRecovery: @unchecked Sendable {
    // Safe to share: mutable state is written by one thread before recovery is armed.
    let supervisor: Supervisor
    private let store: GrantStore
    private let id: GrantID
    /// What never changes once the view is mounted.
    private let state: FileDescriptor
    /// The descriptor of the socket to the keeper.
    var keeper: Int32?

    // Tests set other values.
    private static var crashesAllowed: UInt32 { InjectedFault.crashes.number ?? 5 }
    private static var patience: UInt32 { InjectedFault.patience.number ?? 30 }
    private static var longestAlone: UInt32 { UInt32(clamping: 2 * UInt64(patience)) }

    /// Starts the supervisor for the daemon of mount `id`. `previous`: what a dead predecessor has left. Must be called before there
    /// are threads.
    init(of id: GrantID, _ view: ViewName, _ store: GrantStore, previous: UnsafeMutablePointer<clinux_supervised>? = nil) throws(GrantError)
    {
        (self.id, self.store) = (id, store)
        // The supervisor inherits this process's limit and needs room up to it.
        _ = DescriptorLimit.raise()
        do throws(Errno) {
            state = try MemoryFile.of([])
            supervisor = try Supervisor(
                arguments: ["grantfs", "recover", "--store", store.directory, id.description],
                goodbye: KeeperCommand.Message.ended.rawValue,
                crashesAllowed: Self.crashesAllowed, patience: Self.patience, longestAlone: Self.longestAlone,
                locked: store.lockedFiles, previous: previous)
        } catch {
            throw GrantError(.system, "the view “\(view)” cannot be mounted with -o recover", cause: error.description)
        }
        MountRecord.record(supervisor: supervisor.process, of: id, in: store.runDirectory)
    }

    /// Writes down what never changes.
    func prepare(_ mount: HandingOver.Mount, _ mounted: MountedView, _ server: ControlServer) throws(GrantError) {
        do throws(Errno) {
            guard mounted.files.session != nil, mounted.files.records != nil else { throw Errno(ENOMEM) }
            var writer = HandoverWriter()
            HandoverHead(mount, mounted, pausedSince: 0).write(to: &writer)
            writer.put(server.listener)
            mounted.files.writeFixed(to: &writer)
            try writer.write(into: state)
            let page = supervisor.page
            page.pointee.state = state.number
            page.pointee.keeper = keeper ?? -1
            page.pointee.state_bytes = UInt64(truncatingIfNeeded: writer.count)
        } catch {
            throw GrantError(
                .mountFailed, "the view “\(mounted.view)” cannot be mounted with -o recover",
                cause: error.description)
        }
    }

    /// From now on, another daemon follows if this one dies.
    func begin(_ mount: HandingOver.Mount, _ mounted: MountedView, _ server: ControlServer) throws(GrantError) {
        try prepare(mount, mounted, server)
        arm(true)
    }

    func arm(_ isArmed: Bool) { supervisor.arm(isArmed) }

    /// The mount is gone.
    func end() {
        arm(false)
        MountRecord.forgetSupervisor(of: id, in: store.runDirectory)
    }
}
