import Glibc

/// One line of /proc/self/mountinfo, see proc_pid_mountinfo(5).
public struct MountEntry: Sendable, Hashable {
    /// Unique among the current mounts, and reused once the mount is gone.
    public let id: UInt64
    public let parent: UInt64
    public let major: UInt32
    public let minor: UInt32
    /// The directory of the filesystem that is this mount's root.
    ///
    /// It is `/` unless it is a bind mount or a subvolume.
    public let root: [UInt8]
    /// Unescaped, relative to the process's root directory.
    public let mountpoint: [UInt8]
    /// The options of this mount: `ro`, `nosuid`, …
    public let options: String
    /// `ext4`, `tmpfs`, `fuse.grantfs`.
    public let type: String
    /// Unescaped.
    public let source: [UInt8]
    /// The options of the filesystem, the same for all its mounts.
    public let superOptions: String
}

/// A snapshot of the mounts of this process's namespace.
///
/// In the kernel's order: later ones cover earlier ones.
public struct MountTable: Sendable {
    public let entries: [MountEntry]

    public init(entries: [MountEntry]) { self.entries = entries }

    /// Reads /proc/self/mountinfo. Never blocks: calls no mounted filesystem.
    public static func current() throws(Errno) -> MountTable {
        MountTable(parsing: try File.contents(of: Array("/proc/self/mountinfo".utf8)))
    }

    /// Skips malformed lines.
    public init(parsing text: [UInt8]) {
        entries = text.split(separator: 0x0A).compactMap { MountEntry(line: $0) }
    }

    /// Whether the filesystem with this device number is mounted.
    public func has(_ device: DeviceNumber) -> Bool { entries.contains { $0.major == device.major && $0.minor == device.minor } }

    public func entry(id: UInt64) -> MountEntry? { entries.first { $0.id == id } }

    /// The topmost mount at exactly this path, which is absolute and canonical.
    public func entry(mountpoint: [UInt8]) -> MountEntry? { entries.last { $0.mountpoint == mountpoint } }

    /// A directory, and the path of the mount that it is on.
    package struct FoundDirectory: ~Copyable {
        package let directory: FileDescriptor
        package let mountpoint: [UInt8]
    }

    /// Finds a directory of a mount without a place on another mount of its filesystem.
    ///
    /// - Parameter path: The expected path of the directory. It is preferred.
    package func find(_ directory: borrowing FileDescriptor, expected path: [UInt8]) -> FoundDirectory? {
        guard let status = try? directory.status() else { return nil }
        // The root of a mount without a place has no path.
        let end = (try? directory.path()) ?? [0x2F]
        func place(on entry: MountEntry) -> [UInt8] {
            end == [0x2F] ? entry.mountpoint : (entry.mountpoint == [0x2F] ? [] : entry.mountpoint) + end
        }
        // Others may hang. Subvolumes have numbers of their own.
        let candidates = entries.reversed().filter { $0.statDevice == status.st.st_dev || ["btrfs", "bcachefs"].contains($0.type) }
        for entry in candidates.filter({ place(on: $0) == path }) + candidates {
            guard let opened = try? FileDescriptor.openWithoutLinks(place(on: entry)), let other = try? opened.status(),
                other.st.st_ino == status.st.st_ino, other.st.st_dev == status.st.st_dev
            else { continue }
            return FoundDirectory(directory: opened, mountpoint: entry.mountpoint)
        }
        return nil
    }

    /// The mount on which this absolute, canonical path lies.
    public func entry(holding path: [UInt8]) -> MountEntry? {
        var best: MountEntry?
        for entry in entries where MountTable.path(path, isAtOrBelow: entry.mountpoint) {
            if entry.mountpoint.count >= best?.mountpoint.count ?? 0 { best = entry }
        }
        return best
    }

    /// The device of a mount's parent and the directory on it that the mount covers. It is nil if the
    /// parent is not visible.
    ///
    /// It is the same in each namespace with a copy of the parent.
    package func location(of mount: MountEntry) -> [UInt8]? {
        entry(id: mount.parent).map { $0.location(of: mount.mountpoint) }
    }

    /// The location that a mount at this absolute, canonical path has.
    package func location(ofMountAt path: [UInt8]) -> [UInt8]? {
        let above = path.lastIndex(of: 0x2F).map { Array(path[..<$0]) } ?? []
        return entry(holding: above.isEmpty ? [0x2F] : above)?.location(of: path)
    }

    /// Whether `path` is `directory` or lies below it.
    ///
    /// Both are absolute and canonical, without a `/` at the end.
    public static func path(_ path: [UInt8], isAtOrBelow directory: [UInt8]) -> Bool {
        guard path.starts(with: directory) else { return false }
        return path.count == directory.count || directory == [0x2F] || path[directory.count] == 0x2F
    }
}

extension MountEntry {
    fileprivate func location(of path: [UInt8]) -> [UInt8] {
        Array("\(major):\(minor) ".utf8) + (root == [0x2F] ? [] : root) + path.dropFirst(mountpoint == [0x2F] ? 0 : mountpoint.count)
    }

    init?(line: ArraySlice<UInt8>) {
        // Fields are separated by one space, and a space inside a field is \040. Optional fields
        // end at a lone "-".
        let fields = line.split(separator: 0x20, omittingEmptySubsequences: false)
        guard let dash = fields.dropFirst(6).firstIndex(of: [0x2D]), fields.count >= dash + 3 else { return nil }
        let device = fields[2].split(separator: 0x3A)
        guard device.count == 2, let id = MountEntry.number(fields[0]), let parent = MountEntry.number(fields[1]),
            let major = MountEntry.number(device[0]), let minor = MountEntry.number(device[1])
        else { return nil }
        self.init(
            id: id, parent: parent, major: UInt32(truncatingIfNeeded: major), minor: UInt32(truncatingIfNeeded: minor),
            root: MountEntry.unescaped(fields[3]), mountpoint: MountEntry.unescaped(fields[4]),
            options: String(decoding: fields[5], as: UTF8.self),
            type: String(decoding: MountEntry.unescaped(fields[dash + 1]), as: UTF8.self),
            source: MountEntry.unescaped(fields[dash + 2]),
            superOptions: fields.count > dash + 3 ? String(decoding: fields[dash + 3], as: UTF8.self) : "")
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? { UInt64(String(decoding: digits, as: UTF8.self), radix: 10) }

    /// `\040` and its like: a backslash and three octal digits.
    static func unescaped(_ field: ArraySlice<UInt8>) -> [UInt8] {
        guard field.contains(0x5C) else { return Array(field) }
        var result: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == 0x5C, digits.count == 3, digits.allSatisfy({ (0x30...0x37).contains($0) }) {
                result.append(digits.reduce(UInt8(0)) { $0 << 3 | ($1 - 0x30) })
                rest = rest.dropFirst(3)
            } else {
                result.append(byte)
            }
        }
        return result
    }
}

extension MountEntry {
    /// As stat(2) returns it. On btrfs, files have another one for each subvolume.
    package var statDevice: dev_t { makedev(major, minor) }

    private func makedev(_ major: UInt32, _ minor: UInt32) -> dev_t {
        let high: UInt64 = (UInt64(truncatingIfNeeded: major) & ~0xFFF) << 32 | (UInt64(truncatingIfNeeded: minor) & ~0xFF) << 12
        let low: UInt64 = (UInt64(truncatingIfNeeded: major) & 0xFFF) << 8 | UInt64(truncatingIfNeeded: minor) & 0xFF
        return dev_t(truncatingIfNeeded: high | low)
    }
}
