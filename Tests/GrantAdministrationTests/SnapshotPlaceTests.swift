import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantAdministration

/// Permitted places of a snapshot, and names that another process replaced.
@Suite struct APlaceOfASnapshot {
    private let bench: Bench
    private let source: String
    private let place: String

    init() throws {
        bench = try Bench()
        source = try bench.directory("source")
        place = try bench.directory("place")
        // Enough for a look while it is under way.
        for name in 0..<8 { try Data(count: 4 << 20).write(to: URL(fileURLWithPath: "\(source)/\(name)")) }
    }

    private func make(at path: String, check: @escaping () throws(GrantError) -> Void = {}) throws(GrantError) -> Snapshot.Made {
        try Snapshot.make(of: [Array(source.utf8)], in: Array(path.utf8), check: check)
    }

    private func code(_ body: () throws(GrantError) -> Snapshot.Made) -> GrantError.Code? {
        do throws(GrantError) {
            _ = try body()
            return nil
        } catch {
            return error.code
        }
    }

    private var staging: String? {
        (try? FileManager.default.contentsOfDirectory(atPath: place))?.first { $0.hasPrefix(".grantfs-snapshot-") }.map { "\(place)/\($0)" }
    }

    /// A directory with a file, a directory and a file below it.
    private func other() throws -> String {
        let other = try bench.directory("other")
        _ = try bench.directory("other/below")
        for name in ["kept", "below/kept"] { try Data("kept".utf8).write(to: URL(fileURLWithPath: "\(other)/\(name)")) }
        return other
    }

    private func isWhole(_ other: String) -> Bool { access(other + "/kept", F_OK) == 0 && access(other + "/below/kept", F_OK) == 0 }

    @Test(
        "A snapshot keeps a foreign directory that took the name of its staging directory",
        arguments: [true, false])
    func exchanged(fails: Bool) throws {
        let other = try other()
        var isExchanged = false
        let result = code { () throws(GrantError) in
            try make(at: place + "/snap") { () throws(GrantError) in
                if !isExchanged, let staging, rename(staging, place + "/aside") == 0, rename(other, staging) == 0 { isExchanged = true }
                if fails { throw GrantError(.notFound, "enough") }
            }
        }
        #expect(isExchanged && result == (fails ? .notFound : .system))
        let name = try #require(staging)
        #expect(isWhole(name), "what was put there is kept")
        #expect(access(place + "/snap", F_OK) != 0, "and is not published")
        #expect(try FileManager.default.contentsOfDirectory(atPath: place + "/aside").isEmpty, "what was made is removed wherever it is")
    }

    @Test("The removal of a snapshot spares the siblings of a directory that was moved away")
    func moved() throws {
        // The tree to be removed has names that also lie where its directory comes to be.
        let top = try bench.directory("place/top")
        let beside = try other()
        for name in ["a", "below", "kept.d"] { _ = try bench.directory("place/top/\(name)/below/kept") }
        let directory = try FileDescriptor.open(top.utf8, O_RDONLY | O_DIRECTORY)
        let parent = try FileDescriptor.open(place.utf8, O_RDONLY | O_DIRECTORY)
        #expect(rename(top + "/a", beside + "/a") == 0)
        try TreeRemoval.remove(directory, named: Array("top".utf8), in: parent)
        #expect(isWhole(beside) && access(beside + "/a/below/kept", F_OK) == 0)
        #expect(access(top, F_OK) != 0)
    }

    @Test("The removal of a snapshot empties deep and unreadable trees")
    func deep() throws {
        let top = try bench.directory("place/top")
        let way = String(repeating: "/d", count: 600)
        _ = try bench.directory("place/top" + way)
        _ = try bench.directory("place/top/d/closed/below")
        for name in ["/d/closed/below", "/d/closed", "/d"] { chmod(top + name, 0) }
        chmod(top + "/d", 0o500)
        let directory = try FileDescriptor.open(top.utf8, O_RDONLY | O_DIRECTORY)
        let parent = try FileDescriptor.open(place.utf8, O_RDONLY | O_DIRECTORY)
        try TreeRemoval.remove(directory, named: Array("top".utf8), in: parent)
        #expect(access(top, F_OK) != 0)
    }

    @Test("The removal of a snapshot spares a successor with the same name")
    func successor() throws {
        let made = try make(at: place + "/snap")
        #expect(rename(place + "/snap", place + "/aside") == 0)
        let other = try other()
        #expect(rename(other, place + "/snap") == 0)
        var refusal: Errno?
        do throws(Errno) {
            try Snapshot.remove(Array((place + "/snap").utf8), made.key)
        } catch {
            refusal = error
        }
        #expect(refusal == Errno(ESTALE))
        #expect(isWhole(place + "/snap") && access(place + "/aside/source", F_OK) == 0)
    }

    @Test("A snapshot requires a directory that is private or sticky")
    func modes() throws {
        for (number, mode) in [0o755, 0o700, 0o1777, 0o1775].enumerated() {
            chmod(place, mode_t(mode))
            #expect(code { () throws(GrantError) in try make(at: "\(place)/\(number)") } == nil, "\(String(mode, radix: 8))")
        }
        for mode in [0o777, 0o2777, 0o702] {
            chmod(place, mode_t(mode))
            #expect(code { () throws(GrantError) in try make(at: place + "/snap") } == .permission, "\(String(mode, radix: 8))")
            #expect(staging == nil && access(place + "/snap", F_OK) != 0)
        }
    }

    @Test("A snapshot may be in a directory of the user's own group only", .enabled(if: geteuid() == 0, "needs root"))
    func groups() throws {
        chmod(place, 0o775)
        chown(place, 0, 0)
        #expect(code { () throws(GrantError) in try make(at: place + "/own") } == nil)
        chown(place, 0, 12_345)
        #expect(code { () throws(GrantError) in try make(at: place + "/snap") } == .permission)
        // Of its own group again, with a list that names a user.
        chown(place, 0, 0)
        // acl(5), as in linux/posix_acl_xattr.h: a version, then tag, permissions and id of each entry.
        func entry(_ tag: UInt8, _ permissions: UInt8, _ id: UInt32 = .max) -> [UInt8] {
            [tag, 0, permissions, 0] + (0..<4).map { UInt8(truncatingIfNeeded: id >> ($0 * 8)) }
        }
        let list = [2, 0, 0, 0] + entry(1, 7) + entry(2, 7, 12_345) + entry(4, 5) + entry(0x10, 7) + entry(0x20, 5)
        let directory = try FileDescriptor.open(place.utf8, O_RDONLY | O_DIRECTORY)
        // Unless the filesystem has no such lists.
        if (try? directory.setAttribute("system.posix_acl_access", to: list)) == nil { return }
        #expect(code { () throws(GrantError) in try make(at: place + "/snap") } == .permission)
    }

    @Test(
        "A snapshot of root is refused if another user can change the path to it",
        .enabled(if: geteuid() == 0, "needs root"))
    func ways() throws {
        _ = try bench.directory("place/theirs/roots")
        symlink("theirs/roots", place + "/link")
        symlink(place, place + "/good")
        #expect(code { () throws(GrantError) in try make(at: place + "/link/1") } == nil)
        chown(place + "/theirs", 12_345, 12_345)
        #expect(code { () throws(GrantError) in try make(at: place + "/theirs/snap") } == .permission)
        #expect(code { () throws(GrantError) in try make(at: place + "/theirs/roots/snap") } == .permission)
        #expect(code { () throws(GrantError) in try make(at: place + "/link/snap") } == .permission)
        #expect(code { () throws(GrantError) in try make(at: place + "/good/2") } == nil)
        lchown(place + "/good", 12_345, 12_345)
        #expect(code { () throws(GrantError) in try make(at: place + "/good/snap") } == .permission)
    }
}
