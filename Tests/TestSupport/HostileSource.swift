import Foundation
import Glibc

/// A separate filesystem below a fixture whose replies break the rules of a filesystem: see
/// Tests/HostileSource. Needs root.
public final class HostileSource {
    /// The mountpoint, which a test grants.
    public let directory: String
    private let server: Child

    /// The numbers that its statfs(2) returns.
    public enum Space: String, Sendable {
        case files, blocks, all
    }

    public init(_ name: String, in fixture: MountFixture, space: Space? = nil) throws {
        directory = try fixture.source(name)
        server = try Child([Programs.hostileSource, directory] + (space.map { [$0.rawValue] } ?? []))
        let directory = directory
        try fixture.wait(until: "the hostile source is mounted") { fixture.mountpoints.contains(directory) }
    }

    /// Waits until it prints this line.
    public func expect(_ line: String) throws { try server.expect(line) }

    deinit { end() }

    /// Ends the filesystem. Waiting callers get an error. A test calls this at its end, before the
    /// fixture is destroyed.
    public func end() { server.kill() }
}
