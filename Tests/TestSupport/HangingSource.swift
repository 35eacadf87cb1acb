import Foundation
import Glibc

/// A filesystem of its own, below a fixture, that stops answering when it is told to and goes on when it is told to.
public final class HangingSource {
    /// Where it is mounted: what a test grants.
    public let directory: String
    /// What it shows, to be looked at beside it.
    public let behind: String
    private let control: String
    private let server: Child

    /// `squashes`: it does everything as who asks for it, and as nobody for root, like an NFS server with its root squashed. For all users.
    public init(_ name: String, in fixture: MountFixture, squashes: Bool = false) throws {
        directory = try fixture.source(name)
        behind = try fixture.directory("outside/" + name)
        control = fixture.base + "/outside/" + name + ".hangs"
        server = try Child([Programs.hungSource, behind, directory, control] + (squashes ? ["squash"] : []))
        let directory = directory
        try fixture.wait(until: "the source that can hang is mounted") { fixture.mountpoints.contains(directory) }
    }

    deinit { end() }

    /// From now on the named operations do not return; all of them when none is named.
    public func hang(_ operations: String...) throws {
        try Data(operations.joined(separator: " ").utf8).write(to: URL(fileURLWithPath: control), options: .atomic)
    }

    /// From now on the named operations fail, each with its error number.
    public func fail(_ operations: [String: Int32]) throws {
        let words = operations.map { "\($0)=\($1)" }.joined(separator: " ")
        try Data(words.utf8).write(to: URL(fileURLWithPath: control), options: .atomic)
    }

    /// What hung or failed goes on.
    public func goOn() { unlink(control) }

    /// Ends it, whatever hangs: whoever waits for it gets an error. To be called at the end of a test, before the fixture's.
    public func end() {
        goOn()
        server.kill()
    }

    /// A file of so many bytes that the source shows.
    public func file(_ name: String, size: Int = 4096) throws {
        let path = behind + "/" + name
        try FileManager.default.createDirectory(
            atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        guard FileManager.default.createFile(atPath: path, contents: Data("text".utf8)), truncate(path, size) == 0 else {
            throw TestFailure("cannot make \(path)")
        }
    }
}
