import GrantConfinement
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// The names below the caller's home that a program looks up outside of its grants: `run --learn`.
///
/// A thread receives them while the program runs. It looks at no file: a program that measures its calls would learn which
/// files the machine has. The program chooses the names, so only a bounded number is kept.
final class LookupObserver: Sendable {
    /// The names so far, as the machine spells them.
    struct Names: Sendable {
        struct Uses: Sendable {
            var reads: Int64 = 0
            var changes: Int64 = 0
            var total: Int64 { reads + changes }
        }

        fileprivate(set) var known: [[UInt8]: Uses] = [:]
        /// The lookups of names beyond the limit.
        fileprivate(set) var others: Int64 = 0
        /// Whether the kernel did not allow to read a name.
        fileprivate(set) var areUnreadable = false
        private var bytes = 0

        static let (mostNames, mostBytes) = (8192, 2 << 20)

        mutating func add(_ path: [UInt8], isChange: Bool) {
            if known[path] == nil {
                guard known.count < Names.mostNames, bytes + path.count <= Names.mostBytes else {
                    others += 1
                    return
                }
                bytes += path.count
            }
            if isChange { known[path, default: Uses()].changes += 1 } else { known[path, default: Uses()].reads += 1 }
        }
    }

    private let control: UnixSocket
    /// The socket to this process, for the first step in the sandbox.
    private let sandbox: Lock<Int32>
    private let names = Lock(Names())
    /// The caller's home, as the program names it, and canonical.
    private let (home, canonicalHome): ([UInt8], [UInt8])
    private let shown: [[UInt8]]

    /// Starts the thread. `shown`: the paths at which the program finds its grants.
    init(shown: [[UInt8]]) throws(GrantError) {
        home = CanonicalPath.plain(SandboxProfiles.home)
        canonicalHome = CanonicalPath.resolveWhatExists(home)
        self.shown = shown
        do throws(Errno) {
            let way = try UnixSocket.pair()
            sandbox = Lock(try Errno.check(fcntl(way.other.number, F_DUPFD_CLOEXEC, 3)))
            control = way.closeOther()
            try WorkerThread.start("lookups") { [self] in serve() }.detach()
        } catch {
            throw GrantError(
                .unsupported, "run: the program's lookups cannot be observed", cause: error.description, advice: "leave --learn out")
        }
    }

    /// Gives away the two descriptors of the first step in the sandbox, once.
    func hand(to handed: HandedDescriptors) throws(Errno) -> (socket: Int32, filter: Int32) {
        let socket = sandbox.withLock { socket in
            defer { socket = -1 }
            return socket
        }
        return (handed.hand(FileDescriptor(owning: socket)), handed.hand(try LookupFilter.file()))
    }

    /// In the sandbox: loads the filter into this thread, for the program that it becomes, and passes the listener out.
    static func observe(socket: Int32, filter: Int32) throws(Errno) {
        let control = UnixSocket(connected: FileDescriptor(owning: socket))
        let program = try File.contents(of: "/proc/self/fd/\(filter)".utf8)
        let listener = try LookupFilter.load(program)
        // Until the other side has it, a lookup here would wait for ever.
        try control.send(descriptors: [listener.number], deadline: Clock.monotonic + 10_000_000_000)
    }

    /// The names so far. When the program has ended, these are all: each call was noted before it was answered.
    var found: Names { names.withLock { $0 } }

    private func serve() {
        // Ends with an error if the sandbox does before it had begun the program.
        guard let listener = try? control.receive(descriptors: 1, deadline: .max).first else { return }
        LookupListener(FileDescriptor(owning: listener)).serve { name in
            guard let name else { return names.withLock { $0.areUnreadable = true } }
            note(name)
        }
    }

    private func note(_ name: LookedUpName) {
        if isElsewhere(name.path) { return }
        let plain = CanonicalPath.plain(name.path)
        let path = MountTable.path(plain, isAtOrBelow: home) ? canonicalHome + plain.dropFirst(home.count) : plain
        guard path != canonicalHome, MountTable.path(path, isAtOrBelow: canonicalHome) else { return }
        // The directories above are in the sandbox as well.
        let isShown = shown.contains { place in
            [path, plain].contains { MountTable.path($0, isAtOrBelow: place) || MountTable.path(place, isAtOrBelow: $0) }
        }
        if !isShown { names.withLock { $0.add(path, isChange: name.isChange) } }
    }

    /// Whether a path is plainly not below the home, as most are.
    private func isElsewhere(_ path: [UInt8]) -> Bool {
        if path.starts(with: home) || path.starts(with: canonicalHome) { return false }
        // `//`, `/./` and `/../` may lead there.
        return zip(path, path.dropFirst()).allSatisfy {
            $0 != UInt8(ascii: "/") || ($1 != UInt8(ascii: "/") && $1 != UInt8(ascii: "."))
        }
    }

    deinit {
        let socket = sandbox.withLock { $0 }
        if socket >= 0 { close(socket) }
    }
}
