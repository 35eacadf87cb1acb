import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantAdministration

/// Snapshots without a claim: their contents, and leftovers of a failure. `MountTests` tests
/// snapshots of claimed items.
@Suite struct ASnapshot {
    private let bench: Bench
    private let source: String
    private let place: String

    init() throws {
        bench = try Bench()
        source = try bench.directory("source")
        place = try bench.directory("place")
        _ = try bench.directory("source/b/d")
        for name in ["a", "b/c", "b/d/e"] {
            try Data(name.utf8).write(to: URL(fileURLWithPath: "\(source)/\(name)"))
        }
    }

    private func make(
        _ items: String..., at name: String = "snap", check: @escaping () throws(GrantError) -> Void = {}
    ) throws(GrantError) -> Snapshot.Made {
        try Snapshot.make(of: items.map { Array($0.utf8) }, in: Array("\(place)/\(name)".utf8), check: check)
    }

    /// All names in the place, hidden ones as well.
    private var left: [String] { (try? FileManager.default.contentsOfDirectory(atPath: place).sorted()) ?? [] }

    private func text(_ path: String) -> String? {
        FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }
    }

    @Test("A snapshot has each item under its own name and reports its place and size")
    func items() throws {
        let other = try bench.directory("other")
        let made = try make(source, other, source + "/b/c")
        #expect(made.paths.map { String(decoding: $0, as: UTF8.self) } == ["source", "other", "c"].map { "\(place)/snap/\($0)" })
        // Three directories of the source and its three files, the other one, and a file.
        #expect(made.files == 8 && made.bytes == UInt64("ab/cb/d/eb/c".utf8.count))
        #expect(text(place + "/snap/source/b/d/e") == "b/d/e" && text(place + "/snap/c") == "b/c")
        #expect(left == ["snap"])
        try Snapshot.remove(Array((place + "/snap").utf8), made.key)
        #expect(left.isEmpty)
    }

    @Test("A cancelled snapshot leaves no files", arguments: [1, 2, 5])
    func givenUp(after looks: Int) throws {
        var count = 0
        // Long enough for several looks.
        let big = source + "/big"
        #expect(FileManager.default.createFile(atPath: big, contents: Data(count: 64 << 20)))
        do throws(GrantError) {
            _ = try make(source) { () throws(GrantError) in
                count += 1
                if count == looks { throw GrantError(.system, "enough") }
            }
            // The last look is taken when all is copied.
            #expect(count < looks)
        } catch {
            #expect(error.message == "enough" && count == looks)
            #expect(left.isEmpty, "\(left)")
        }
    }

    @Test("A failed snapshot leaves no files and replaces none")
    func failures() throws {
        func code(_ body: () throws(GrantError) -> Snapshot.Made) -> GrantError.Code? {
            do throws(GrantError) {
                _ = try body()
                return nil
            } catch {
                return error.code
            }
        }
        #expect(code { () throws(GrantError) in try make(source + "/none") } == .notFound)
        #expect(code { () throws(GrantError) in try make(source, source + "/b/../../source") } == .usage)
        #expect(code { () throws(GrantError) in try Snapshot.make(of: [Array(source.utf8)], in: Array((source + "/b/in").utf8)) } == .usage)
        #expect(
            code { () throws(GrantError) in try Snapshot.make(of: [Array(source.utf8)], in: Array((place + "/none/in").utf8)) } == .system)
        #expect(left.isEmpty, "\(left)")
        try Data("kept".utf8).write(to: URL(fileURLWithPath: place + "/snap"))
        #expect(code { () throws(GrantError) in try make(source) } == .alreadyExists)
        // A file that appears there in the meantime is kept as well.
        unlink(place + "/snap")
        let late = { () throws(GrantError) in try self.make(self.source) { () throws(GrantError) in mkdir(self.place + "/snap", 0o755) } }
        #expect(code(late) == .alreadyExists)
        #expect(left == ["snap"] && rmdir(place + "/snap") == 0)
    }

    @Test("A snapshot removes leftovers of killed processes and spares those in progress")
    func leftovers() throws {
        for name in [".grantfs-snapshot-dead/x/y", ".grantfs-snapshot-alive"] { _ = try bench.directory("place/" + name) }
        for name in ["dead", "alive"] { chmod("\(place)/.grantfs-snapshot-\(name)", 0o700) }
        try Data("left".utf8).write(to: URL(fileURLWithPath: place + "/.grantfs-snapshot-dead/x/y/file"))
        let alive = try FileDescriptor.open((place + "/.grantfs-snapshot-alive").utf8, O_RDONLY | O_DIRECTORY)
        let isLocked = try alive.tryLock()
        #expect(isLocked)
        _ = try make(source)
        #expect(left == [".grantfs-snapshot-alive", "snap"])
        withExtendedLifetime(alive) {}
    }

    @Test("A snapshot and its removal follow no symbolic links")
    func links() throws {
        symlink("/etc", source + "/directory")
        symlink("/etc/passwd", source + "/file")
        symlink("nowhere", source + "/dangling")
        let made = try make(source)
        for (name, target) in [("directory", "/etc"), ("file", "/etc/passwd"), ("dangling", "nowhere")] {
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: "\(place)/snap/source/\(name)") == target)
        }
        try Snapshot.remove(Array((place + "/snap").utf8), made.key)
        #expect(left.isEmpty)
        #expect(access("/etc/passwd", F_OK) == 0)
    }
}
