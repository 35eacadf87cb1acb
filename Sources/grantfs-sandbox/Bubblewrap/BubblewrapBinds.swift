import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// The binds of a command line of bubblewrap: which sources are granted, and which are shown as they are.
struct BubblewrapBinds {
    /// A bind whose source is granted, or lies in a granted directory.
    struct Granted {
        /// Its place among the options.
        let index: Int
        /// Canonical.
        let source: [UInt8]
        let isReadOnly: Bool
        /// The device and inode of a source that is given by a descriptor.
        var identity: (device: UInt64, inode: UInt64)?
        /// That descriptor.
        var descriptor: Int32?
    }

    private(set) var granted: [Granted] = []
    /// The options whose source does not exist and need not.
    private(set) var absent: Set<Int> = []
    /// Binds as they are of directories that contain the store, and the store's path in the sandbox.
    private(set) var showingStore: [(index: Int, place: [UInt8])] = []

    static let binds: Set = ["--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "--ro-bind", "--ro-bind-try"]
    static let descriptorBinds: Set = ["--bind-fd", "--ro-bind-fd"]
    private static let overlays: Set = ["--overlay", "--overlay-src"]

    private let files = PersonalFiles()
    private let stores: StorePlaces
    /// Binds as they are: canonical sources, and whether other programs of the person may replace them.
    private var plain: [(index: Int, source: [UInt8], isPersonal: Bool)] = []
    private let table: MountTable

    /// Looks at the mount table alone. `read` follows.
    init(store: String) throws(GrantError) {
        do throws(Errno) {
            table = try MountTable.current()
        } catch {
            throw GrantError(.system, "the mount table cannot be read", cause: error.description)
        }
        stores = StorePlaces(CanonicalPath.resolveWhatExists(Array(store.utf8)), in: table)
    }

    /// Returns how many binds may be granted, as far as the words tell.
    func countCandidates(_ line: BubblewrapLine) -> Int {
        line.options.count { option in
            Self.descriptorBinds.contains(option.name)
                || Self.binds.contains(option.name) && files.contain(CanonicalPath.plain(CanonicalPath.absolute(option.values[0])))
        }
    }

    mutating func read(_ line: BubblewrapLine) throws(GrantError) {
        for (index, option) in line.options.enumerated() {
            if Self.binds.contains(option.name) { try addBind(option, index) }
            if Self.descriptorBinds.contains(option.name) { try addDescriptor(option, index) }
            if Self.overlays.contains(option.name) { try checkOverlay(option) }
        }
    }

    private mutating func addBind(_ option: BubblewrapLine.Option, _ index: Int) throws(GrantError) {
        let source: [UInt8]
        do throws(Errno) {
            source = try CanonicalPath.resolve(option.values[0])
        } catch {
            // It may exist by the time bubblewrap looks.
            if error == Errno(ENOENT), option.name.hasSuffix("-try") {
                absent.insert(index)
                return
            }
            throw GrantError(.notFound, "bwrap: can't find source path \(VisibleText.of(option.values[0]))", cause: error.description)
        }
        try add(source, option.values[1], isReadOnly: option.name.hasPrefix("--ro-"), index)
    }

    private mutating func addDescriptor(_ option: BubblewrapLine.Option, _ index: Int) throws(GrantError) {
        let number = try BubblewrapLine.descriptor(option.values[0], of: option.name)
        var status = stat()
        guard fstat(number, &status) == 0, let source = try? CanonicalPath.target(of: Array("/proc/self/fd/\(number)".utf8)) else {
            throw GrantError(.usage, "bwrap: the file of descriptor \(number) cannot be examined")
        }
        let before = granted.count
        try add(source, option.values[1], isReadOnly: option.name == "--ro-bind-fd", index)
        if granted.count == before { return }
        granted[before].descriptor = number
        granted[before].identity = (UInt64(truncatingIfNeeded: status.st_dev), UInt64(truncatingIfNeeded: status.st_ino))
    }

    private mutating func add(_ source: [UInt8], _ place: [UInt8], isReadOnly: Bool, _ index: Int) throws(GrantError) {
        let shown = stores.below(source)
        // A proposal checks a source that is granted.
        if shown.isEmpty, files.contain(source), isGrantable(source), !isGranted(source) {
            granted.append(Granted(index: index, source: source, isReadOnly: isReadOnly))
            return
        }
        if shown.isEmpty || shown.contains([]) || !isReadOnly {
            try GrantAdministrator.checkShown(source, store: String(decoding: stores.store, as: UTF8.self))
        }
        for rest in shown { showingStore.append((index, (place == [0x2F] ? [] : place) + rest)) }
        plain.append((index, source, files.contain(source)))
    }

    /// A write to an overlay changes none of its sources, and a revocation would leave what the overlay has copied.
    private func checkOverlay(_ option: BubblewrapLine.Option) throws(GrantError) {
        let source = CanonicalPath.resolveWhatExists(option.values[0])
        guard files.contain(source) || !stores.below(source).isEmpty else { return }
        throw GrantError(
            .unsupported, "bwrap: “\(VisibleText.of(source))” cannot be revoked in an overlay", advice: "bind it, or use --no-grants")
    }

    /// Whether it is a directory or a regular file. A socket is of no use through a grant.
    private func isGrantable(_ path: [UInt8]) -> Bool {
        var status = stat()
        guard withCString(path, { lstat($0, &status) }) == 0 else { return true }
        return [S_IFDIR, S_IFREG].contains(status.st_mode & S_IFMT)
    }

    /// Whether it lies in a mount of grantfs, where it can be revoked already.
    private func isGranted(_ path: [UInt8]) -> Bool { table.entry(holding: path)?.type == GrantAdministrator.filesystemType }

    /// Returns the canonical source of a bind, or nil for other options.
    func source(of index: Int) -> [UInt8]? {
        granted.first { $0.index == index }?.source ?? plain.first { $0.index == index }?.source
    }

    /// Whether the store exists. Otherwise bubblewrap would have to make its directory.
    var hasStore: Bool { stores.exists }

    /// Whether this process is in a sandbox of this command, which covers the store. The grants there are the outer session's.
    var isInSandbox: Bool {
        let isCovered = table.entry(mountpoint: stores.store).map { $0.type == "tmpfs" && $0.options.split(separator: ",").contains("ro") }
        let isBound = table.entries.contains { entry in
            entry.type == GrantAdministrator.filesystemType && entry.root.starts(with: Array("/bound/".utf8))
        }
        return (isCovered == true || isBound) && !ownsAllUsers
    }

    /// Drops binds without a source, and passes the canonical sources of binds as they are: between this look and bubblewrap's, a link may
    /// come to lead elsewhere. A source that programs may replace is passed as a descriptor, where that is possible.
    func prepare(_ arguments: inout BubblewrapArguments, _ bubblewrap: BubblewrapProgram) throws(GrantError) {
        arguments.drop(absent)
        InjectedFault.stop(at: "binding")
        for (index, source, isPersonal) in plain {
            let option = arguments.option(index)
            guard Self.binds.contains(option.name) else { continue }
            let name = option.name.hasPrefix("--ro-") ? "--ro-bind-fd" : "--bind-fd"
            if isPersonal, !option.name.hasPrefix("--dev-"), try bubblewrap.valueCount(of: name) != nil {
                do throws(Errno) {
                    let number = try arguments.hand(try FileDescriptor.open(source, OpenFlags.path | O_NOFOLLOW))
                    arguments.replace(index, with: [Array(name.utf8), Array("\(number)".utf8), option.values[1]])
                } catch {
                    throw GrantError(.notFound, "bwrap: can't find source path \(VisibleText.of(source))", cause: error.description)
                }
            } else {
                arguments.replace(index, with: [Array(option.name.utf8), source, option.values[1]])
            }
        }
    }

    /// Whether the user namespace is the machine's.
    private var ownsAllUsers: Bool {
        let words = File.line(of: "/proc/self/uid_map")?.split(separator: " ") ?? []
        return words == ["0", "0", "4294967295"]
    }
}

extension BubblewrapBinds {
    /// A directory or file to grant.
    struct Choice {
        let source: [UInt8]
        let access: Access
    }

    /// Returns what to grant. A source in a granted directory needs no grant of its own, unless it is for writing and that one is not.
    var choices: [Choice] {
        var chosen: [Choice] = []
        for source in Set(granted.map(\.source)).sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            let isWritten = granted.contains { $0.source == source && !$0.isReadOnly }
            if let above = Self.choice(holding: source, among: chosen), above.access == .readWrite || !isWritten,
                !isWritten || !isProtected(source, below: above)
            {
                continue
            }
            chosen.append(Choice(source: source, access: isWritten ? .readWrite : .readOnly))
        }
        return chosen
    }

    /// Whether a bind for reading, which becomes a rule, lies between a choice and the source.
    private func isProtected(_ source: [UInt8], below choice: Choice) -> Bool {
        granted.contains { other in
            ![source, choice.source].contains(other.source) && MountTable.path(source, isAtOrBelow: other.source)
                && MountTable.path(other.source, isAtOrBelow: choice.source)
                && !granted.contains { $0.source == other.source && !$0.isReadOnly }
        }
    }

    /// Returns the innermost choice that is or contains the path.
    static func choice(holding path: [UInt8], among choices: [Choice]) -> Choice? {
        choices.filter { MountTable.path(path, isAtOrBelow: $0.source) }.max { $0.source.count < $1.source.count }
    }
}
