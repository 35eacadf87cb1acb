import Glibc

/// Reads small files whole, such as those of /proc.
public enum File {
    /// Reads to the end of the file. Follows links: only for paths of the program itself.
    ///
    /// - Parameter onProgress: Called after each part.
    public static func contents(of path: some Sequence<UInt8>, _ onProgress: () -> Void = {}) throws(Errno) -> [UInt8] {
        let file = try FileDescriptor.open(path, O_RDONLY)
        var result: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = read(file.number, &buffer, buffer.count)
            if count == 0 { return result }
            if count < 0 {
                if errno == EINTR { continue }
                throw Errno(errno)
            }
            result.append(contentsOf: buffer[..<count])
            onProgress()
        }
    }

    /// The contents as text, surrounding white space removed. Returns nil if the file cannot be
    /// read.
    public static func line(of path: String) -> String? {
        guard let bytes = try? contents(of: Array(path.utf8)) else { return nil }
        let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x0A || byte == 0x09 }
        let text = bytes.drop(while: isBlank).reversed().drop(while: isBlank).reversed()
        return String(decoding: Array(text), as: UTF8.self)
    }
}

/// This boot of the machine.
extension File {
    /// Replaces the file (mode 0600) by one with these contents, or makes it. A crash leaves the one or the other. Follows no link at its
    /// name. The directory has to be the caller's own.
    public static func replace(_ path: String, with contents: [UInt8]) throws(Errno) {
        let fresh = path + ".new"
        let file = try FileDescriptor.open(fresh.utf8, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
        do throws(Errno) {
            let count = write(file.number, contents, contents.count)
            if count != contents.count { throw Errno(count < 0 ? errno : ENOSPC) }
            if fsync(file.number) != 0 || rename(fresh, path) != 0 { throw Errno(errno) }
        } catch {
            unlink(fresh)
            throw error
        }
        try keepNames(in: path.lastIndex(of: "/").map { String(path[...$0]) } ?? ".")
    }

    /// Makes the names in the directory survive a crash.
    public static func keepNames(in directory: String) throws(Errno) {
        let descriptor = try FileDescriptor.open(directory.utf8, O_RDONLY | O_DIRECTORY)
        if fsync(descriptor.number) != 0 { throw Errno(errno) }
    }
}

public enum Boot {
    /// /proc/sys/kernel/random/boot_id, or `unknown` if it cannot be read.
    public static var id: String { known ?? "unknown" }

    /// The same, or nil if it cannot be read, as in a process without free descriptors.
    public static var known: String? {
        if let id = last.withLock({ $0 }) { return id }
        guard let id = File.line(of: "/proc/sys/kernel/random/boot_id") else { return nil }
        last.withLock { $0 = id }
        return id
    }

    private static let last = Lock<String?>(nil)
}
