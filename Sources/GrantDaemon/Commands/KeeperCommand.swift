import GrantCommandLine
import GrantFUSE
import GrantModel
import Glibc
import GrantMounts
import GrantSystem
import GrantViewFS

/// `grantfsd keeper`: the small process beside a daemon. It unmounts for a user's daemon, which may start no program itself. When the
/// daemon has died, it makes the kernel drop its cache: cached pages and mappings would stay readable as long as a process holds them.
/// The dead mount stays, and returns ENOTCONN.
///
/// Descriptor 3 is a socket to the daemon, 4 another device of its connection, 5 the numbers of its nodes, and 6, where available, the
/// control file that aborts the connection.
enum KeeperCommand {
    static let declaration = CommandDeclaration(
        "keeper", "Looks after a mount whose daemon is on descriptor 3.",
        operands: [OperandDeclaration("MOUNTPOINT"), OperandDeclaration("MOUNT"), OperandDeclaration("DAEMON")],
        options: [
            OptionDeclaration("recoverable", help: "the nodes lie on descriptor 5 as well", isHidden: true),
            OptionDeclaration("cuts", help: "descriptor 6 cuts the connection, see FUSEConnection.control", isHidden: true),
            OptionDeclaration("waits", help: "another daemon has the mount until this one's takes over", isHidden: true),
        ],
        isHidden: true)

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        // A service manager sends signals to all processes of a service. This one ends with its
        // daemon.
        for number in [SIGTERM, SIGINT, SIGHUP, SIGPIPE] { signal(number, SIG_IGN) }
        ProcessName.set(WorkingKeeper.name)
        _ = chdir("/")
        // It must not keep inherited pipes open.
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        if null >= 0 { dup2(null, Terminal.standardError) }
        let words = arguments.operands
        guard let mount = MountIdentity(words: words[1]),
            case let daemons = String(decoding: words[2], as: UTF8.self).split(separator: ",").compactMap({ Int32($0) }),
            !daemons.isEmpty
        else { return 2 }
        let socket = FileDescriptor(owning: 3)
        let orphan = OrphanedMount(
            OrphanedConnection(device: FileDescriptor(owning: 4)), published: FileDescriptor(owning: 5),
            hasElements: arguments.has("recoverable"), control: arguments.has("cuts") ? 6 : nil)
        // Its open descriptors are all it needs. A user's mount is unmounted by another program.
        if geteuid() == 0 { Confinement.giveUpEverything() }
        if arguments.has("waits"), receive(from: socket, daemons) != .begin { return 0 }
        while true {
            switch receive(from: socket, daemons) {
            case .begin: continue
            case .unmount: _ = write(socket.number, [unmount(mount, at: words[0])], 1)
            case .ended: return 0
            case .died:
                SystemLog.open(isForeground: false)
                SystemLog.write(
                    .error,
                    "the daemon of the mount at \(Terminal.visible(words[0])) has died"
                        + (arguments.has("recoverable") ? ", and no other one goes on" : "")
                        + ": the mount refuses everything, and what the kernel has cached is forgotten")
                // A service manager that ends the service from now on need not wait for files that
                // a program holds.
                orphan.forgetAll {
                    ProcessName.set(WorkingKeeper.nameAtTheEnd)
                    signal(SIGTERM, SIG_DFL)
                }
                return 0
            }
        }
    }

    /// The daemon's messages, one byte each.
    enum Message: UInt8 {
        /// Unmount, and answer with a byte: 0 when that is done.
        case unmount = 0x75
        /// The daemon has withdrawn everything and unmounted.
        case ended = 0x65
        /// The mount belongs to the daemon from now on.
        case begin = 0x62
        /// Never sent: the daemon has hung up.
        case died = 0
    }

    /// Waits for the daemon's next message, or its death. A killed process keeps its socket while a thread is in the kernel: in an
    /// invalidation that waits for a program's lock, or a granted filesystem that hangs. So the process is inspected now and then as
    /// well.
    private static func receive(from socket: borrowing FileDescriptor, _ daemons: [Int32]) -> Message {
        while true {
            var end = pollfd(fd: socket.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
            let count = poll(&end, 1, 500)
            if count < 0, errno != EINTR { return .died }
            if count > 0 {
                var byte: UInt8 = 0
                let received = read(socket.number, &byte, 1)
                if received < 0, errno == EINTR || errno == EAGAIN { continue }
                guard received == 1 else { return .died }
                if let word = Message(rawValue: byte) { return word }
            }
            if count > 0 { continue }
            if let pause = InjectedFault.keeperPause.number { usleep(pause &* 1_000) }
            guard daemons.allSatisfy({ ProcessState.isOver($0) }) else { continue }
            // Their last word may have come since: they say it before they end.
            if poll(&end, 1, 0) <= 0 { return .died }
        }
    }

    private static func unmount(_ mount: MountIdentity, at mountpoint: [UInt8]) -> UInt8 {
        // `unmount` compares the object that is at the path by now.
        do throws(Errno) {
            try Mountpoint(canonical: mountpoint).unmount(mount, lazy: true)
            return 0
        } catch {
            return 1
        }
    }
}

/// The daemon's end of the keeper.
final class Keeper: Sendable {
    private let socket: UnixSocket

    /// How long fusermount3 may take, in seconds.
    private static let unmountTimeout = 60.0

    /// `mount`: the mount to look after, wherever `mountpoint` leads by then. `nodes`: see `SharedChunks`. `supervisor`: the process
    /// that starts another daemon when this one dies. `waits`: inactive until `begin`.
    init(
        mountpoint: [UInt8], mount: MountIdentity, _ connection: FUSEConnection, _ session: Session, nodes: borrowing FileDescriptor,
        supervisor: Int32?, waits: Bool = false
    ) throws(Errno) {
        let pair = try UnixSocket.pair()
        let device = try session.cloneDevice()
        // Root always gets it, users where fusectl is mounted.
        let control = (try? connection.control(isServedHere: true))?.release()
        defer { if let control { close(control) } }
        _ = try ChildProcess.spawn(
            "/proc/self/exe",
            arguments: (["grantfs", "keeper"] + (waits ? ["--waits"] : [])
                + (supervisor == nil ? [] : ["--recoverable"]) + (control == nil ? [] : ["--cuts"]) + ["--"]).map { Array($0.utf8) } + [
                    mountpoint, mount.words, Array((supervisor.map { "\(getpid()),\($0)" } ?? "\(getpid())").utf8),
                ],
            detached: true, descriptors: [pair.other.number, device.number, nodes.number] + (control.map { [$0] } ?? []))
        socket = pair.closeOther()
    }

    /// The descriptor of the socket to the keeper.
    var number: Int32 { socket.number }

    /// Makes it unmount, and waits.
    func unmount() throws(GrantError) {
        do throws(Errno) {
            let deadline = Clock.deadline(seconds: Self.unmountTimeout)
            try socket.send([KeeperCommand.Message.unmount.rawValue], deadline: deadline)
            if try socket.receive(1, deadline: deadline) == [0] { return }
            throw Errno(EBUSY)
        } catch {
            throw GrantError(.mountFailed, "the view cannot be unmounted", cause: error.description, advice: "fusermount3 -uz does it")
        }
    }

    /// Tells it that the mount is this daemon's from now on.
    func begin() { _ = try? socket.sendSome([KeeperCommand.Message.begin.rawValue]) }

    /// Tells it that nothing is left to look after.
    func dismiss() { _ = try? socket.sendSome([KeeperCommand.Message.ended.rawValue]) }
}

extension MountIdentity {
    /// Encoded as one word of a command line.
    fileprivate var words: [UInt8] { Array("\(device.major):\(device.minor):\(id):\(number ?? 0)".utf8) }

    fileprivate init?(words: [UInt8]) {
        let parts = String(decoding: words, as: UTF8.self).split(separator: ":")
        guard parts.count == 4, let major = UInt32(parts[0]), let minor = UInt32(parts[1]), let id = UInt64(parts[2]),
            let number = UInt64(parts[3])
        else { return nil }
        self.init(device: DeviceNumber(major: major, minor: minor), id: id, number: number == 0 ? nil : number)
    }
}
