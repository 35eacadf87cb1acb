import Foundation
import Glibc

/// The names and inodes that the kernel keeps, which are the same for all mounts: a test that has them dropped takes them from every test beside it.
/// Those that count on them hold a shared lock, and whoever drops them an exclusive one, on a directory that every machine has.
public enum KernelCaches {
    /// Runs `body` while no test drops them, in this process or in another one.
    public static func kept<Result>(_ body: () throws -> Result) throws -> Result { try locked(LOCK_SH, body) }

    /// Has the kernel forget the names and inodes that nobody uses, as soon as no test counts on them. Root alone can.
    public static func drop() throws {
        _ = try locked(LOCK_EX) { try Command.shell("echo 2 > /proc/sys/vm/drop_caches").orThrow() }
    }

    private static func locked<Result>(_ kind: Int32, _ body: () throws -> Result) throws -> Result {
        let directory = open("/proc/sys/vm", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        defer { close(directory) }
        while flock(directory, kind) != 0 {
            if errno != EINTR { throw TestFailure("flock: \(String(cString: strerror(errno)))") }
        }
        return try body()
    }
}
