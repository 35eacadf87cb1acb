import Glibc
import LinuxFS

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

    /// Looks through /proc for what lies on the filesystems with these device numbers. Only the kernel's memory is read, so a
    /// daemon that does not answer is no hindrance. Processes that may not be looked at are left out.
    public static func all(of devices: Set<DeviceNumber>) -> [DeviceNumber: [Holder]] {
        if devices.isEmpty { return [:] }
        var result: [DeviceNumber: [Holder]] = [:]
        for pid in names(in: "/proc").compactMap({ Int32($0) }).sorted() {
            for (device, found) in ProcessScan(pid: pid, devices: devices).held {
                let command = (try? File.contents(of: Array("/proc/\(pid)/comm".utf8))) ?? []
                let paths = found.paths.sorted { $0.lexicographicallyPrecedes($1) }
                let holder = Holder(
                    pid: pid, command: command.last == 0x0A ? command.dropLast() : command,
                    kinds: Kind.allCases.filter { found.kinds.contains($0) }, paths: paths)
                result[device, default: []].append(holder)
            }
        }
        return result
    }

    fileprivate static func names(in directory: String) -> [String] {
        ((try? DirectoryNames.of(directory.utf8)) ?? []).map { String(decoding: $0, as: UTF8.self) }
    }
}

/// One process's part of the search.
private struct ProcessScan {
    struct Found {
        var kinds: Set<Holder.Kind> = []
        var paths: Set<[UInt8]> = []
    }

    private(set) var held: [DeviceNumber: Found] = [:]
    private let devices: Set<DeviceNumber>

    init(pid: Int32, devices: Set<DeviceNumber>) {
        self.devices = devices
        let process = "/proc/\(pid)"
        for (name, kind) in [("cwd", Holder.Kind.cwd), ("root", .root), ("exe", .exe)] { look(at: "\(process)/\(name)", kind) }
        for number in Holder.names(in: "\(process)/fd") { look(at: "\(process)/fd/\(number)", .fd) }
        // Threads may have a working directory or descriptors of their own; mostly they share, and the set takes each path once.
        for thread in Holder.names(in: "\(process)/task") where thread != "\(pid)" {
            look(at: "\(process)/task/\(thread)/cwd", .cwd)
        }
        for line in ((try? File.contents(of: Array("\(process)/maps".utf8))) ?? []).split(separator: 0x0A) { look(atMapping: line) }
    }

    private mutating func look(at link: String, _ kind: Holder.Kind) {
        guard let device = try? DeviceNumber.withoutAsking(link), devices.contains(device) else { return }
        note(device, kind, try? CanonicalPath.target(of: Array(link.utf8)))
    }

    /// `address perms offset major:minor inode   path`, the device in hexadecimal.
    private mutating func look(atMapping line: ArraySlice<UInt8>) {
        let fields = line.split(separator: 0x20, maxSplits: 5, omittingEmptySubsequences: true)
        guard fields.count == 6 else { return }
        let numbers = fields[3].split(separator: 0x3A).map { UInt32(String(decoding: $0, as: UTF8.self), radix: 16) }
        guard numbers.count == 2, let major = numbers[0], let minor = numbers[1] else { return }
        let device = DeviceNumber(major: major, minor: minor)
        guard devices.contains(device) else { return }
        // In this file alone a newline in a name is written \012.
        note(device, .mmap, Array(fields[5].drop { $0 == 0x20 }))
    }

    private mutating func note(_ device: DeviceNumber, _ kind: Holder.Kind, _ path: [UInt8]?) {
        held[device, default: Found()].kinds.insert(kind)
        if let path { held[device, default: Found()].paths.insert(path) }
    }
}
