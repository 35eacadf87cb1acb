import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantProxy
import GrantStore
import GrantSystem

/// What a program wanted and did not get, for the log: names outside of its grants, and hosts.
struct RunWants {
    /// How many names of one run the log gets, and how many bytes of names.
    private static let (mostNames, mostBytes) = (500, 256 << 10)

    private let view: ViewName
    private var entries: [LogEntry] = []
    private var hasNames = false
    private var hostCount = 0
    private var areUnreadable = false

    /// `label`: the run's, which is its view if it has one of its own.
    init?(_ label: String, _ names: LookupObserver.Names?, refused: [Refusal], others: Int) {
        guard let view = try? ViewName(label) else { return nil }
        self.view = view
        if let names {
            add(names)
            areUnreadable = names.areUnreadable
        }
        for refusal in refused {
            let detail = VisibleText.cut("\(refusal.target): \(refusal.reason)", to: 600)
            append(.hostRefused, detail: detail, error: EACCES, count: Int64(refusal.count))
        }
        hostCount = refused.count
        if others > 0 { append(.hostRefused, detail: "other hosts", error: EACCES, count: Int64(others)) }
    }

    /// Writes the entries, and says which commands show them. Best effort: the program has ended.
    func record(in store: GrantStore) {
        if areUnreadable {
            Terminal.note("some names were not learnt: a process may not be inspected (its own wish, kernel.yama.ptrace_scope, AppArmor)")
        }
        if entries.isEmpty, !hasNames { return }
        do throws(GrantError) {
            try store.appendOfRun(entries)
        } catch {
            return Terminal.note("what the program wanted is not recorded: \(error.message)")
        }
        var parts: [String] = []
        // Not how many: the program may read this, and would learn which names exist.
        if hasNames { parts.append("names outside of its grants") }
        if hostCount > 0 { parts.append("\(hostCount == 1 ? "1 host" : "\(hostCount) hosts") that it did not reach") }
        if parts.isEmpty { parts.append("more than is recorded") }
        Terminal.note(
            "the program wanted \(parts.joined(separator: " and ")): grantfs why \(view) lists them, grantfs profile \(view) proposes a profile"
        )
    }

    private mutating func add(_ names: LookupObserver.Names) {
        let home = HomeFiles()
        // A missing name that was only read would be missing with a grant too.
        let wanted = names.known.filter { $0.value.changes > 0 || home.mayHave($0.key) }.sorted { one, other in
            let (left, right) = ((min(one.value.changes, 1), one.value.total), (min(other.value.changes, 1), other.value.total))
            return left == right ? one.key.lexicographicallyPrecedes(other.key) : left > right
        }
        hasNames = !names.known.isEmpty || names.others > 0
        var (rest, count, bytes) = (names.others, 0, 0)
        for (path, uses) in wanted {
            guard count < RunWants.mostNames, bytes + path.count <= RunWants.mostBytes else {
                rest &+= uses.total
                continue
            }
            (count, bytes) = (count + 1, bytes + path.count)
            let access: OpenAccess = uses.changes == 0 ? .read : uses.reads == 0 ? .write : .readWrite
            append(.wanted, detail: "outside of the grants", path: path, error: ENOENT, access: access, count: uses.total)
        }
        if rest > 0 { append(.wanted, detail: "other names", error: ENOENT, count: rest) }
    }

    private mutating func append(
        _ event: LogEvent, detail: String, path: [UInt8]? = nil, error: Int32, access: OpenAccess? = nil, count: Int64
    ) {
        entries.append(
            LogEntry(
                time: Instant(nanoseconds: Clock.realtime), event: event, actor: Actor.current(), view: view, detail: detail, path: path,
                error: error, access: access, count: count))
    }
}

/// The caller's home, to inspect files without opening them. It follows no link, and enters no other filesystem, which might hang.
final class HomeFiles {
    /// What a name below the home leads to.
    enum Finding {
        case missing
        /// A directory or a regular file of this user.
        case directory
        case file
        /// Anything else, and why it is not looked at, for people.
        case other(String)
    }

    /// Canonical.
    let path: [UInt8]
    /// -1 if there is none.
    private let directory: Int32

    init() {
        path = CanonicalPath.resolveWhatExists(CanonicalPath.plain(SandboxProfiles.home))
        directory = (try? FileDescriptor.open(path, OpenFlags.path | O_DIRECTORY))?.release() ?? -1
    }

    deinit { if directory >= 0 { close(directory) } }

    /// Returns the components of a path below the home, or nil for the home itself and others.
    func names(of path: [UInt8]) -> [[UInt8]]? {
        guard path != self.path, MountTable.path(path, isAtOrBelow: self.path) else { return nil }
        return path.dropFirst(self.path.count).split(separator: UInt8(ascii: "/")).map { Array($0) }
    }

    /// Whether there may be a file of that name.
    func mayHave(_ path: [UInt8]) -> Bool {
        guard let names = names(of: path) else { return false }
        if case .missing = find(names) { return false }
        return true
    }

    func find(_ names: [[UInt8]]) -> Finding {
        if directory < 0 { return .missing }
        do throws(Errno) {
            var file = try FileDescriptor.openBeneath(directory, ".".utf8, OpenFlags.path | O_DIRECTORY)
            var kind = S_IFDIR
            for name in names {
                if kind == S_IFLNK { return .other("a symbolic link leads there") }
                file = try FileDescriptor.openBeneath(file.number, name, OpenFlags.path | O_NOFOLLOW)
                let status = try file.status().st
                // Another user could replace files in such a directory.
                if status.st_uid != geteuid() { return .other("it belongs to another user, or a directory above it does") }
                kind = status.st_mode & S_IFMT
            }
            switch kind {
            case S_IFDIR: return .directory
            case S_IFREG: return .file
            case S_IFLNK: return .other("it is a symbolic link")
            default: return .other("it is neither a directory nor a file")
            }
        } catch {
            switch error {
            case Errno(ENOENT), Errno(ENOTDIR), Errno(ENAMETOOLONG): return .missing
            case Errno(EXDEV): return .other("it is on another filesystem than the home")
            default: return .other("\(error)")
            }
        }
    }
}
