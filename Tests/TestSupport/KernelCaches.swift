import Foundation
import Glibc

/// The names and inodes that the kernel caches. All mounts share these caches, so a test that drops
/// them affects every parallel test.
/// Tests that depend on the caches hold a shared lock on a directory that every machine has. A test
/// that drops them holds an exclusive lock on it.
public enum KernelCaches {
    /// Runs `body` while no test drops the caches, in this process or in another one.
    public static func kept<Result>(_ body: () throws -> Result) throws -> Result { try locked(LOCK_SH, body) }

    /// Drops the unused names and inodes from the kernel's caches, as soon as no test depends on
    /// them. Needs root.
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
