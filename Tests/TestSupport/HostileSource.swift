import Foundation
import Glibc

/// A filesystem of its own, below a fixture, that answers with what no filesystem should: see Tests/HostileSource. Needs root.
public final class HostileSource {
    /// Where it is mounted: what a test grants.
    public let directory: String
    private let server: Child

    /// Which numbers its statfs(2) gives.
    public enum Space: String, Sendable {
        case files, blocks, all
    }

    public init(_ name: String, in fixture: MountFixture, space: Space? = nil) throws {
        directory = try fixture.source(name)
        server = try Child([Programs.hostileSource, directory] + (space.map { [$0.rawValue] } ?? []))
        let directory = directory
        try fixture.wait(until: "the hostile source is mounted") { fixture.mountpoints.contains(directory) }
    }

    /// Waits until it has said this.
    public func expect(_ line: String) throws { try server.expect(line) }

    deinit { end() }

    /// Ends it: whoever waits for it gets an error. To be called at the end of a test, before the fixture's.
    public func end() { server.kill() }
}
