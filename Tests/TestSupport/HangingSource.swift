import Foundation
import Glibc

/// A separate filesystem below a fixture that stops replying, and continues, when the test tells it
/// to.
public final class HangingSource {
    /// The mountpoint, which a test grants.
    public let directory: String
    /// The directory that it shows, for access without the filesystem.
    public let behind: String
    private let control: String
    private let server: Child

    /// - Parameter squashes: every operation runs as its caller, and as the anonymous user for root, like an NFS server with root_squash.
    ///   All users may use the mount.
    public init(_ name: String, in fixture: MountFixture, squashes: Bool = false) throws {
        directory = try fixture.source(name)
        behind = try fixture.directory("outside/" + name)
        control = fixture.base + "/outside/" + name + ".hangs"
        server = try Child([Programs.hungSource, behind, directory, control] + (squashes ? ["squash"] : []))
        let directory = directory
        try fixture.wait(until: "the source that can hang is mounted") { fixture.mountpoints.contains(directory) }
    }

    deinit { end() }

    /// From now on the named operations do not return. Without names, no operation returns.
    public func hang(_ operations: String...) throws {
        try Data(operations.joined(separator: " ").utf8).write(to: URL(fileURLWithPath: control), options: .atomic)
    }

    /// From now on the named operations fail, each with its error number.
    public func fail(_ operations: [String: Int32]) throws {
        let words = operations.map { "\($0)=\($1)" }.joined(separator: " ")
        try Data(words.utf8).write(to: URL(fileURLWithPath: control), options: .atomic)
    }

    /// Continues the operations that hung or failed.
    public func goOn() { unlink(control) }

    /// Ends the filesystem, even if operations hang. Waiting callers get an error. A test calls
    /// this at its end, before the fixture is destroyed.
    public func end() {
        goOn()
        server.kill()
    }

    /// Makes a file of `size` bytes that the source shows.
    public func file(_ name: String, size: Int = 4096) throws {
        let path = behind + "/" + name
        try FileManager.default.createDirectory(
            atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        guard FileManager.default.createFile(atPath: path, contents: Data("text".utf8)), truncate(path, size) == 0 else {
            throw TestFailure("cannot make \(path)")
        }
    }
}
