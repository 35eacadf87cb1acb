import Glibc
import GrantSystem

/// A process that holds something of a mount.
public struct Holder: Sendable {
    public enum Kind: String, Sendable, CaseIterable {
        case fd
        case mmap
        case cwd
        case exe
        case root
        /// A mount in the process's mount namespace.
        case mount
    }

    public let pid: Int32
    /// The name from /proc/PID/comm.
    public let command: [UInt8]
    public let kinds: [Kind]
    /// The held paths, each once, as the holder sees them.
    public let paths: [[UInt8]]
    /// Distinguishes the filesystem from others that have or had its device number.
    var marks: Set<Mark> = []
    /// For mounts: their locations (`MountTable.location`).
    package fileprivate(set) var locations: [[UInt8]?] = []

    struct Mark: Hashable, Sendable {
        /// The unique id of the mount through which something is held. It is nil if the kernel does
        /// not report it.
        var mount: UInt64?
        /// See `FUSEConnection`.
        var generation: UInt32?
    }

    /// Searches /proc for files on the filesystems with these device numbers, in any mount namespace, and even if they are mounted
    /// nowhere any more. It reads only the kernel's memory, so a daemon that hangs does not block it. It misses processes that may not
    /// be inspected, and what no process has by itself: descriptors in transit through a socket, files registered with an io_uring.
    ///
    /// `until`: a moment of `Clock.monotonic`. Processes that were not looked at by then are unseen.
    package static func search(of devices: Set<DeviceNumber>, until deadline: Int64) -> HolderSearch {
        if devices.isEmpty { return HolderSearch() }
        let pids = names(in: "/proc").compactMap { Int32($0) }.sorted()
        let outcome = ProcessInspector.inspect(pids, until: deadline) { Holder.held(by: $0, of: devices, $1) }
        var search = HolderSearch(unseen: outcome.unseen.compactMap { UnseenProcess($0, wasSkipped: outcome.skipped.contains($0)) })
        for pid in pids {
            for (device, holder) in outcome.found[pid] ?? [:] { search.holders[device, default: []].append(holder) }
        }
        return search
    }

    /// Returns what one process holds, or nil if it cannot be inspected, or not until that moment
    /// of `Clock.monotonic`.
    static func search(by pid: Int32, of device: DeviceNumber, until deadline: Int64) -> Holder? {
        ProcessInspector.inspect([pid], until: deadline) { Holder.held(by: $0, of: [device], $1) }.found[pid]?[device]
    }

    /// The processes of other mount namespaces in which the filesystem with this device number is mounted, one of each namespace and root
    /// directory. Not those that this user may not inspect.
    public static func ofMount(_ device: DeviceNumber, until deadline: Int64) -> [Holder] {
        let target: (String) -> [UInt8]? = { try? CanonicalPath.target(of: Array($0.utf8)) }
        let own = target("/proc/self/ns/mnt")
        var seen: Set<[[UInt8]]> = []
        var found: [Holder] = []
        for pid in names(in: "/proc").compactMap({ Int32($0) }).sorted() where Clock.monotonic < deadline {
            // The first thread may have exited, and then shows nothing.
            guard let thread = ["/proc/\(pid)", lastThread(of: pid)].first(where: { target($0 + "/ns/mnt") != nil }),
                let namespace = target(thread + "/ns/mnt"), namespace != own,
                // A process shows what is mounted below its own root directory.
                seen.insert([namespace, target(thread + "/root") ?? []]).inserted
            else { continue }
            let text = (try? File.contents(of: Array((thread + "/mountinfo").utf8))) ?? []
            let table = MountTable(parsing: text)
            let paths = table.entries.filter { DeviceNumber(major: $0.major, minor: $0.minor) == device }
            if paths.isEmpty { continue }
            var holder = Holder(pid: pid, command: ProcessName.of(pid), kinds: [.mount], paths: paths.map(\.mountpoint))
            holder.locations = paths.map(table.location)
            found.append(holder)
        }
        return found
    }

    private static func lastThread(of pid: Int32) -> String {
        "/proc/\(pid)/task/\(names(in: "/proc/\(pid)/task").compactMap { Int32($0) }.max() ?? pid)"
    }

    private static func held(by pid: Int32, of devices: Set<DeviceNumber>, _ onProgress: () -> Void) -> [DeviceNumber: Holder] {
        var scan = ProcessScan(devices: devices)
        scan.look(at: pid, onProgress)
        return scan.held.mapValues { found in
            let paths = found.paths.sorted { $0.lexicographicallyPrecedes($1) }
            return Holder(
                pid: pid, command: ProcessName.of(pid), kinds: Kind.allCases.filter { found.kinds.contains($0) }, paths: paths,
                marks: found.marks)
        }
    }

    fileprivate static func names(in directory: String) -> [String] {
        ((try? DirectoryNames.of(directory.utf8)) ?? []).map { String(decoding: $0, as: UTF8.self) }
    }
}

/// A process that could not be inspected: see `ProcessInspector`.
public struct UnseenProcess: Sendable {
    public let pid: Int32
    /// The name from /proc/PID/comm.
    public let command: [UInt8]
    /// Whether there was no time for its inspection. Otherwise the kernel denied it.
    public let wasSkipped: Bool

    /// The result is nil if it has ended meanwhile.
    init?(_ pid: Int32, wasSkipped: Bool) {
        guard kill(pid, 0) == 0 || errno != ESRCH else { return nil }
        (self.pid, command, self.wasSkipped) = (pid, ProcessName.of(pid), wasSkipped)
    }
}

/// The result of a search for holders.
package struct HolderSearch: Sendable {
    package var holders: [DeviceNumber: [Holder]] = [:]
    package var unseen: [UnseenProcess] = []
}

/// The scan of one process.
private struct ProcessScan {
    struct Found {
        var kinds: Set<Holder.Kind> = []
        var paths: Set<[UInt8]> = []
        var marks: Set<Holder.Mark> = []
    }

    private(set) var held: [DeviceNumber: Found] = [:]
    private let devices: Set<DeviceNumber>
    /// A thread whose memory, descriptors and directories were inspected last.
    private var (memory, descriptors, directories): (Int32, Int32, Int32) = (0, 0, 0)

    init(devices: Set<DeviceNumber>) { self.devices = devices }

    /// Threads mostly share everything. Separate descriptor tables of threads are found too, and so are threads that run on after the
    /// first has exited, when /proc/PID shows nothing.
    mutating func look(at pid: Int32, _ onProgress: () -> Void) {
        look(atThread: pid, "/proc/\(pid)", onProgress)
        for thread in Holder.names(in: "/proc/\(pid)/task").compactMap({ Int32($0) }) where thread != pid {
            look(atThread: thread, "/proc/\(pid)/task/\(thread)", onProgress)
        }
    }

    private mutating func look(atThread thread: Int32, _ place: String, _ onProgress: () -> Void) {
        onProgress()
        if memory == 0 || !SharedByThreads.memory.isShared(memory, thread) {
            lookAtMemory(place, onProgress)
            memory = thread
        }
        if descriptors == 0 || !SharedByThreads.descriptors.isShared(descriptors, thread) {
            lookAtDescriptors(place, onProgress)
            descriptors = thread
        }
        if directories == 0 || !SharedByThreads.directories.isShared(directories, thread) {
            lookAtDirectories(place)
            directories = thread
        }
    }

    private mutating func lookAtMemory(_ process: String, _ onProgress: () -> Void) {
        look(at: "\(process)/exe", .exe)
        for line in ((try? File.contents(of: Array("\(process)/maps".utf8), onProgress)) ?? []).split(separator: 0x0A) {
            look(atMapping: line, process)
            onProgress()
        }
    }

    private mutating func lookAtDescriptors(_ process: String, _ onProgress: () -> Void) {
        let names = (try? DirectoryNames.of("\(process)/fd".utf8, onProgress)) ?? []
        for number in names {
            look(at: "\(process)/fd/\(String(decoding: number, as: UTF8.self))", .fd)
            onProgress()
        }
    }

    private mutating func lookAtDirectories(_ process: String) {
        look(at: "\(process)/cwd", .cwd)
        look(at: "\(process)/root", .root)
    }

    private mutating func look(at link: String, _ kind: Holder.Kind) {
        guard let place = try? MountIdentity.withoutAsking(link), devices.contains(place.device) else { return }
        add(place.device, kind, try? CanonicalPath.target(of: Array(link.utf8)), mark(of: link, place.number))
    }

    /// `address perms offset major:minor inode   path`, with the device in hexadecimal.
    private mutating func look(atMapping line: ArraySlice<UInt8>, _ process: String) {
        let fields = line.split(separator: 0x20, maxSplits: 5, omittingEmptySubsequences: true)
        guard fields.count == 6 else { return }
        let numbers = fields[3].split(separator: 0x3A).map { UInt32(String(decoding: $0, as: UTF8.self), radix: 16) }
        guard numbers.count == 2, let major = numbers[0], let minor = numbers[1] else { return }
        let device = DeviceNumber(major: major, minor: minor)
        guard devices.contains(device) else { return }
        // Readable for root alone: proc_pid_map_files(5).
        let file = "\(process)/map_files/\(String(decoding: fields[0], as: UTF8.self))"
        // Only in this file a newline in a name is written as \012.
        add(device, .mmap, Array(fields[5].drop { $0 == 0x20 }), mark(of: file, (try? MountIdentity.withoutAsking(file))?.number))
    }

    private func mark(of path: String, _ mount: UInt64?) -> Holder.Mark {
        Holder.Mark(mount: mount, generation: FUSEConnection.node(of: path)?.generation)
    }

    private mutating func add(_ device: DeviceNumber, _ kind: Holder.Kind, _ path: [UInt8]?, _ mark: Holder.Mark) {
        held[device, default: Found()].kinds.insert(kind)
        if let path { held[device, default: Found()].paths.insert(path) }
        held[device, default: Found()].marks.insert(mark)
    }
}
