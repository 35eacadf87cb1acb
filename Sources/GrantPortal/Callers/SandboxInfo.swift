import Glibc
import GrantSystem

/// What Flatpak writes into every sandbox for portals to read: /.flatpak-info, which the sandbox cannot change.
enum SandboxInfo {
    private static let largest = 65_536

    struct Sandbox {
        let app: String
        /// The number by which Flatpak knows this run of the application.
        let instance: String?
    }

    /// The sandbox whose root directory the process has; nil when there is none. EACCES when its root cannot be looked at, EBADMSG when it says nothing of use: neither means
    /// that there is no sandbox.
    static func sandbox(of pid: Int32) throws(Errno) -> Sandbox? {
        let root = try FileDescriptor.open("/proc/\(pid)/root".utf8, OpenFlags.path | O_DIRECTORY)
        let file: FileDescriptor
        do throws(Errno) {
            file = try FileDescriptor.openBeneath(
                root.number, ".flatpak-info".utf8, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, crossMounts: true)
        } catch {
            if error == Errno(ENOENT) { return nil }
            throw error
        }
        guard try file.status().st.st_mode & S_IFMT == S_IFREG else { throw Errno(EBADMSG) }
        let text = try text(of: file)
        guard let app = name(in: text) else { throw Errno(EBADMSG) }
        return Sandbox(app: app, instance: KeyFile(text).values("instance-id", in: ["Instance"]).only)
    }

    private static func text(of file: borrowing FileDescriptor) throws(Errno) -> [UInt8] {
        var result: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while result.count <= largest {
            let count = read(file.number, &buffer, buffer.count)
            if count == 0 { return result }
            if count < 0 {
                if errno == EINTR { continue }
                throw Errno(errno)
            }
            result += buffer[..<count]
        }
        throw Errno(EFBIG)
    }

    /// `name=` of `[Application]`, or of `[Runtime]` where a runtime is run by itself; nil unless there is exactly one, and it is an application's name.
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
