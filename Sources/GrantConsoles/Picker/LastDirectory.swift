import GrantAdministration
import GrantModel
import Glibc
import GrantSystem

/// The directory of the last pick, kept in `$XDG_STATE_HOME/grantfs`. Best effort: all errors are ignored.
public enum LastDirectory {
    private static let file = "/picked"

    public static func read() -> [UInt8]? {
        guard let directory, let bytes = try? File.contents(of: directory + Array(file.utf8)), bytes.first == UInt8(ascii: "/"),
            bytes.count < Int(PATH_MAX), !bytes.contains(0)
        else { return nil }
        return bytes
    }

    /// Replaces the file atomically. Its directory is created with mode 0700.
    public static func write(_ path: [UInt8]) {
        guard let directory else { return }
        var made: [UInt8] = []
        for name in directory.split(separator: UInt8(ascii: "/")) {
            made += [UInt8(ascii: "/")] + name
            withCString(made) { _ = mkdir($0, 0o700) }
        }
        let final = directory + Array(file.utf8)
        let temporary = final + Array(".\(getpid())".utf8)
        guard let descriptor = try? FileDescriptor.open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600) else { return }
        let written = path.withUnsafeBytes { Glibc.write(descriptor.number, $0.baseAddress, $0.count) }
        let isDone = written == path.count && withCString(temporary) { old in withCString(final) { rename(old, $0) } } == 0
        if !isDone { withCString(temporary) { _ = unlink($0) } }
    }

    /// The XDG specification says to ignore a relative path.
    private static var directory: [UInt8]? {
        if let state = environment("XDG_STATE_HOME"), state.first == UInt8(ascii: "/") { return state + Array("/grantfs".utf8) }
        guard let home = environment("HOME"), home.first == UInt8(ascii: "/") else { return nil }
        return home + Array("/.local/state/grantfs".utf8)
    }

    static func environment(_ name: String) -> [UInt8]? {
        guard let value = getenv(name), value.pointee != 0 else { return nil }
        return UnsafeBufferPointer(start: value, count: strlen(value)).map { UInt8(bitPattern: $0) }
    }

    public static var home: [UInt8] { environment("HOME") ?? [UInt8(ascii: "/")] }
}
