import Glibc
import GrantSystem

/// A run of an application of Flatpak: what `flatpak run` writes of it below $XDG_RUNTIME_DIR/.flatpak, where no application comes.
///
/// An application reaches the bus by a proxy, which is a process of its own with other mounts. The
/// proxy's sandbox identifies the caller. The application's sandbox tells where it sees its files.
enum FlatpakInstance {
    /// The first process in the sandbox, or nil if it is unknown. Its mounts may be used to find
    /// its files, and must not be trusted for anything else: it may have ended, and another one may
    /// have its number.
    static func firstProcess(of instance: String) -> Int32? {
        guard let text = try? contents("bwrapinfo.json", of: instance) else { return nil }
        return childPID(in: text)
    }

    /// What Flatpak wrote into the sandbox of that run. ENOENT when there is no such run.
    static func information(of instance: String) throws(Errno) -> [UInt8] { try contents("info", of: instance) }

    private static func contents(_ name: String, of instance: String) throws(Errno) -> [UInt8] {
        guard isNumber(instance), let runtime = getenv("XDG_RUNTIME_DIR").map({ String(cString: $0) }), runtime.hasPrefix("/") else {
            throw Errno(ENOENT)
        }
        let directory = try FileDescriptor.open(runtime.utf8, OpenFlags.path | O_DIRECTORY)
        let file = try FileDescriptor.openBeneath(
            directory.number, ".flatpak/\(instance)/\(name)".utf8, OpenFlags.path | O_NOFOLLOW, crossMounts: false)
        return try SmallFile.contents(of: file)
    }

    static func isNumber(_ instance: String) -> Bool {
        (1...20).contains(instance.utf8.count) && instance.utf8.allSatisfy { (0x30...0x39).contains($0) }
    }

    /// The number behind `"child-pid":`, which bubblewrap writes.
    static func childPID(in text: [UInt8]) -> Int32? {
        let key = Array("\"child-pid\":".utf8)
        guard let start = text.indices.first(where: { text[$0...].starts(with: key) }) else { return nil }
        let digits = text[(start + key.count)...].drop { $0 == 0x20 }.prefix { (0x30...0x39).contains($0) }
        return Int32(String(decoding: digits, as: UTF8.self)).flatMap { $0 > 0 ? $0 : nil }
    }
}
