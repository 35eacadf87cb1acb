import Foundation
import Glibc
import TestSupport

/// An O_PATH descriptor of a file or directory.
final class HeldPath {
    // O_PATH, which needs _GNU_SOURCE.
    private static let onlyPath: Int32 = 0o10_000_000
    private let descriptor: Int32

    init(_ path: String) throws {
        descriptor = open(path, Self.onlyPath | O_CLOEXEC)
        if descriptor < 0 { throw TestFailure("\(path): errno \(errno)") }
    }

    deinit { close(descriptor) }

    /// Opens the file again and reads from it. Returns 0 or the error.
    func read() -> Int32 {
        let file = open("/proc/self/fd/\(descriptor)", O_RDONLY | O_CLOEXEC)
        if file < 0 { return errno }
        defer { close(file) }
        var byte: UInt8 = 0
        return pread(file, &byte, 1, 0) < 0 ? errno : 0
    }

    /// Requests the attributes. Returns 0 or the error.
    func attributes() -> Int32 {
        var status = stat()
        return fstat(descriptor, &status) == 0 ? 0 : errno
    }

    /// Looks up an entry. Returns 0 or the error.
    func list() -> Int32 {
        guard let stream = opendir("/proc/self/fd/\(descriptor)") else { return errno }
        defer { closedir(stream) }
        errno = 0
        return readdir(stream) == nil ? errno : 0
    }
}
