import Glibc
import GrantBookmarks
import GrantSystem

/// What Flatpak writes into every sandbox for portals to read: /.flatpak-info, which the sandbox cannot change.
enum SandboxInfo {
    struct Sandbox {
        let app: String
        /// The number by which Flatpak knows this run of the application.
        let instance: String
    }

    /// Returns the sandbox whose root directory the process has, or nil if there is none. Throws
    /// EACCES if its root cannot be read, and EBADMSG if its information is useless or was not
    /// written by Flatpak: neither means that there is no sandbox. It never waits for a filesystem
    /// that may hang.
    static func sandbox(of pid: Int32) throws(Errno) -> Sandbox? {
        let root = try FileDescriptor.open("/proc/\(pid)/root".utf8, OpenFlags.path | O_DIRECTORY)
        var places = Places(of: pid)
        guard try places.answers(root) else { throw Errno(EACCES) }
        let found: FileDescriptor
        do throws(Errno) {
            found = try FileDescriptor.openBeneath(root.number, ".flatpak-info".utf8, OpenFlags.path | O_NOFOLLOW, crossMounts: true)
        } catch {
            if error == Errno(ENOENT) { return nil }
            throw error
        }
        guard try places.answers(found) else { throw Errno(EBADMSG) }
        let text = try SmallFile.contents(of: found)
        guard let sandbox = sandbox(in: text) else { throw Errno(EBADMSG) }
        // Any program that makes a sandbox can bind a file there. Sandboxes cannot reach Flatpak's
        // own record of the run.
        guard let known = try? FlatpakInstance.information(of: sandbox.instance), known == text else { throw Errno(EBADMSG) }
        return sandbox
    }

    /// Which filesystems are sure to answer. One that an application could make hang is not asked.
    private struct Places {
        private let pid: Int32
        private var tables: (own: MountTable, theirs: MountTable)?

        init(of pid: Int32) { self.pid = pid }

        /// Whether the filesystem surely answers: it is mounted on the host as well and has no
        /// server or daemon, or it is a sandbox's own tmpfs.
        mutating func answers(_ descriptor: borrowing FileDescriptor) throws(Errno) -> Bool {
            let (mount, root) = (try MountIdentity(of: descriptor), try MountIdentity.withoutAsking("/"))
            if mount.isSame(as: root) { return true }
            if tables == nil { tables = (try MountTable.current(), try SmallFile.mounts(of: pid)) }
            guard let tables, let entry = tables.theirs.entry(id: mount.id) ?? tables.own.entry(id: mount.id) else { return false }
            if entry.type == "tmpfs" { return true }
            guard !FilesystemTraits(type: entry.type).isRemote || entry.device == tables.own.entry(id: root.id)?.device else {
                return false
            }
            return tables.own.entries.contains { $0.device == entry.device }
        }
    }

    /// Returns nil unless it has one name, an application's, and one number of a run.
    static func sandbox(in text: [UInt8]) -> Sandbox? {
        guard !text.contains(0), String(validating: text, as: UTF8.self) != nil, let app = name(in: text),
            let instance = KeyFile(text).values("instance-id", in: ["Instance"]).only, FlatpakInstance.isNumber(instance)
        else { return nil }
        return Sandbox(app: app, instance: instance)
    }

    /// Returns `name=` of `[Application]`, or of `[Runtime]` if a runtime runs by itself. It is nil
    /// unless there is exactly one, and it is an application's name.
    static func name(in text: [UInt8]) -> String? {
        KeyFile(text).values("name", in: ["Application", "Runtime"]).only.flatMap { DocumentNames.isApp($0) ? $0 : nil }
    }
}

/// The files of GLib's key file format, as far as they are needed here: groups of lines `key=value`.
struct KeyFile {
    private let lines: [(group: String, key: String, value: String)]

    init(_ text: [UInt8]) {
        var group = ""
        var lines: [(group: String, key: String, value: String)] = []
        for line in String(decoding: text, as: UTF8.self).split(separator: "\n") {
            if line.hasPrefix("["), line.hasSuffix("]") {
                group = String(line.dropFirst().dropLast())
            } else if !line.hasPrefix("#"), let equals = line.firstIndex(of: "=") {
                let key = line[..<equals].filter { $0 != " " }
                lines.append((group, key, String(line[line.index(after: equals)...].drop { $0 == " " })))
            }
        }
        self.lines = lines
    }

    func values(_ key: String, in groups: [String]) -> [String] {
        lines.filter { $0.key == key && groups.contains($0.group) }.map(\.value)
    }
}

extension Array {
    /// Its element when it has one alone.
    var only: Element? { count == 1 ? self[0] : nil }
}
