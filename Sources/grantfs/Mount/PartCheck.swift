import Glibc
import GrantControl
import GrantModel
import GrantStore
import GrantSystem
import GrantViewFS

/// One look at what the names of grants lead to in the mount of their cache mode, on a thread of its own, because that mount's daemon may
/// hang. It waits for no granted filesystem but for those of grants whose directories are being looked for, a second at most.
final class PartCheck: Sendable {
    enum Sight: Equatable, Sendable {
        /// The granted directory. A scope that was opened anew has another node.
        case directory(FUSENode)
        /// Its directory cannot be found now.
        case missing
        /// It is refused, or the daemon does not answer.
        case refused
    }

    struct Seen: Sendable {
        let grant: WantedGrant
        let sight: Sight
    }

    /// When it was begun: `Clock.monotonic`.
    let begun = Clock.monotonic
    private let seen = Lock<[Seen]>([])
    /// When it ended.
    private let end = Lock<Int64?>(nil)
    private let part: MountRecord
    private let main: MountRecord
    private let directory: String
    /// When the kernel has nothing cached any more of what an earlier look has looked up.
    private let notBefore: Int64

    /// The time that a daemon has, in milliseconds, and the time-out of its answer, in seconds.
    private static let (time, timeout): (UInt32, Double) = (2_000, 2.5)

    /// `notBefore`: from the look before (`isForgotten`). `directory`: the store's directory of sockets.
    init(in part: MountRecord, for main: MountRecord, _ directory: String, notBefore: Int64) {
        (self.part, self.main, self.directory, self.notBefore) = (part, main, directory, notBefore)
    }

    /// `new`: grants that were never seen like this. Their daemons may not have read the store since.
    func start(at grants: [WantedGrant], new: [WantedGrant]) {
        let work: @Sendable () -> Void = { [self] in
            look(at: grants, new: new)
            end.withLock { $0 = Clock.monotonic }
        }
        do throws(Errno) {
            try WorkerThread.start("grantfs-check", work).detach()
        } catch {
            end.withLock { $0 = Clock.monotonic }
        }
    }

    /// Takes what was seen since the last call.
    func take() -> [Seen] {
        seen.withLock { seen in
            defer { seen = [] }
            return seen
        }
    }

    var ended: Int64? { end.withLock { $0 } }

    /// When (`Clock.monotonic`) the kernel has forgotten what this one, which has ended, has looked up.
    var isForgotten: Int64 { (ended ?? Clock.monotonic) + VirtualDirectories.expiry }

    private func look(at grants: [WantedGrant], new: [WantedGrant]) {
        if !new.isEmpty {
            // A daemon that has read less than this process may have one of the names for another grant still, and so may the kernel.
            guard hasRead(main, []), hasRead(part, []) else { return }
            let wait = notBefore - Clock.monotonic
            if wait > 0 { usleep(UInt32(clamping: wait / 1_000 + 1)) }
        }
        guard let names = root() else { return }
        var absent: [WantedGrant] = []
        for grant in grants {
            let sight = PartCheck.sight(of: grant.grant.name, in: names)
            if case .directory = sight {
            } else if new.contains(grant) {
                absent.append(grant)
                continue
            }
            note(grant, sight)
        }
        // They may be found in this moment.
        if absent.isEmpty || !hasRead(part, absent.map(\.grant.id)) { return }
        for grant in absent { note(grant, PartCheck.sight(of: grant.grant.name, in: names)) }
    }

    /// The directory of the names; nil when it cannot be opened, or another mount has come there.
    private func root() -> FileDescriptor? {
        guard let names = try? FileDescriptor.openWithoutLinks(part.mountpoint), let mount = try? MountIdentity(of: names),
            mount.device == part.connection?.device
        else { return nil }
        return names
    }

    private func note(_ grant: WantedGrant, _ sight: Sight) { seen.withLock { $0.append(Seen(grant: grant, sight: sight)) } }

    private static func sight(of name: GrantName, in names: borrowing FileDescriptor) -> Sight {
        do throws(Errno) {
            return .directory(try FUSENode.named(name.bytes, in: names))
        } catch {
            return error == Errno(ENOENT) ? .missing : .refused
        }
    }

    private func hasRead(_ mount: MountRecord, _ grants: [GrantID]) -> Bool {
        PartCheck.apply(to: mount, grants, in: directory)
    }

    /// Has a daemon read the store, and open these grants' directories. Returns whether it has read it, and the kernel knows no name of
    /// before any more.
    static func apply(to mount: MountRecord, _ grants: [GrantID], in directory: String) -> Bool {
        let request = ControlRequest.apply(grants: grants, timeoutMilliseconds: time)
        let reply = try? ControlClient.ask(
            request, socket: mount.socket, directory: directory, deadline: Clock.deadline(seconds: timeout))
        if case .applied = reply { return true }
        return false
    }
}
