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
    }

    public let pid: Int32
    /// As /proc/PID/comm has it.
    public let command: [UInt8]
    public let kinds: [Kind]
    /// What is held, each once, as the holder sees it.
    public let paths: [[UInt8]]
    /// By what its filesystem can be told from others that have or had its number.
    var marks: Set<Mark> = []

    struct Mark: Hashable, Sendable {
        /// Of the mount through which something is held: never used again. nil where the kernel does not say.
        var mount: UInt64?
        /// See `FUSEConnection`.
        var generation: UInt32?
    }

    /// Looks through /proc for what lies on the filesystems with these device numbers, in whatever mount namespace and whether or not it is
    /// still mounted anywhere. Only the kernel's memory is read, so a daemon that does not answer is no hindrance. Processes that may not be
    /// looked at are left out, and so is what no process has by itself: descriptors that are on their way through a socket, files that are
    /// registered with an io_uring.
    static func search(of devices: Set<DeviceNumber>) -> HolderSearch {
        if devices.isEmpty { return HolderSearch() }
        let pids = names(in: "/proc").compactMap { Int32($0) }.sorted()
        let outcome = ProcessLook.at(pids) { Holder.held(by: $0, of: devices) }
        var search = HolderSearch(unseen: outcome.unseen.compactMap { UnseenProcess($0) })
        for pid in pids {
            for (device, holder) in outcome.found[pid] ?? [:] { search.holders[device, default: []].append(holder) }
        }
        return search
    }

    /// What one process holds; nil when it cannot be looked at.
    static func search(by pid: Int32, of device: DeviceNumber) -> Holder? {
        ProcessLook.at([pid]) { Holder.held(by: $0, of: [device]) }.found[pid]?[device]
    }

    private static func held(by pid: Int32, of devices: Set<DeviceNumber>) -> [DeviceNumber: Holder] {
        ProcessScan(pid: pid, devices: devices).held.mapValues { found in
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

/// A process of which it cannot be said what it holds: see `ProcessLook`.
public struct UnseenProcess: Sendable {
    public let pid: Int32
    /// As /proc/PID/comm has it.
    public let command: [UInt8]

    /// nil when it has ended meanwhile.
    init?(_ pid: Int32) {
        guard kill(pid, 0) == 0 || errno != ESRCH else { return nil }
        (self.pid, command) = (pid, ProcessName.of(pid))
    }
}

/// What a search for holders has found.
struct HolderSearch: Sendable {
    var holders: [DeviceNumber: [Holder]] = [:]
    var unseen: [UnseenProcess] = []
}

/// One process's part of the search.
private struct ProcessScan {
    struct Found {
        var kinds: Set<Holder.Kind> = []
        var paths: Set<[UInt8]> = []
        var marks: Set<Holder.Mark> = []
    }

    private(set) var held: [DeviceNumber: Found] = [:]
    private let devices: Set<DeviceNumber>

    /// Threads mostly share everything. One that has a table of descriptors of its own hides nothing, nor does one that goes on when the first has
    /// ended, of which /proc/PID then shows nothing.
    init(pid: Int32, devices: Set<DeviceNumber>) {
        self.devices = devices
        lookAtMemory("/proc/\(pid)")
        lookAtDescriptors("/proc/\(pid)")
        lookAtDirectories("/proc/\(pid)")
        for thread in Holder.names(in: "/proc/\(pid)/task").compactMap({ Int32($0) }) where thread != pid {
            let directory = "/proc/\(pid)/task/\(thread)"
            if !SharedByThreads.memory.isShared(pid, thread) { lookAtMemory(directory) }
            if !SharedByThreads.descriptors.isShared(pid, thread) { lookAtDescriptors(directory) }
            if !SharedByThreads.directories.isShared(pid, thread) { lookAtDirectories(directory) }
        }
    }

    private mutating func lookAtMemory(_ process: String) {
        look(at: "\(process)/exe", .exe)
        for line in ((try? File.contents(of: Array("\(process)/maps".utf8))) ?? []).split(separator: 0x0A) {
            look(atMapping: line, process)
        }
    }

    private mutating func lookAtDescriptors(_ process: String) {
        for number in Holder.names(in: "\(process)/fd") { look(at: "\(process)/fd/\(number)", .fd) }
    }

    private mutating func lookAtDirectories(_ process: String) {
        look(at: "\(process)/cwd", .cwd)
        look(at: "\(process)/root", .root)
    }

    private mutating func look(at link: String, _ kind: Holder.Kind) {
        guard let place = try? MountIdentity.withoutAsking(link), devices.contains(place.device) else { return }
        note(place.device, kind, try? CanonicalPath.target(of: Array(link.utf8)), mark(of: link, place.number))
    }

    /// `address perms offset major:minor inode   path`, the device in hexadecimal.
    private mutating func look(atMapping line: ArraySlice<UInt8>, _ process: String) {
        let fields = line.split(separator: 0x20, maxSplits: 5, omittingEmptySubsequences: true)
        guard fields.count == 6 else { return }
        let numbers = fields[3].split(separator: 0x3A).map { UInt32(String(decoding: $0, as: UTF8.self), radix: 16) }
        guard numbers.count == 2, let major = numbers[0], let minor = numbers[1] else { return }
        let device = DeviceNumber(major: major, minor: minor)
        guard devices.contains(device) else { return }
        // For root alone: proc_pid_map_files(5).
        let file = "\(process)/map_files/\(String(decoding: fields[0], as: UTF8.self))"
        // In this file alone a newline in a name is written \012.
        note(device, .mmap, Array(fields[5].drop { $0 == 0x20 }), mark(of: file, (try? MountIdentity.withoutAsking(file))?.number))
    }

    private func mark(of path: String, _ mount: UInt64?) -> Holder.Mark {
        Holder.Mark(mount: mount, generation: FUSEConnection.generation(of: path))
    }

    private mutating func note(_ device: DeviceNumber, _ kind: Holder.Kind, _ path: [UInt8]?, _ mark: Holder.Mark) {
        held[device, default: Found()].kinds.insert(kind)
        if let path { held[device, default: Found()].paths.insert(path) }
        held[device, default: Found()].marks.insert(mark)
    }
}
