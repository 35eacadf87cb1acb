import Foundation
import GrantSystem
import Testing

/// Which directories a `ChangeWatch` may watch.
@Suite struct ChangeWatchTests {
    @Test("A directory that is watched again counts once")
    func budget() throws {
        let place = FileManager.default.temporaryDirectory.appendingPathComponent("watch-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: place) }
        let watch = try ChangeWatch(.directories, budget: 3)
        func add(_ name: String) throws -> UInt64? {
            let directory = place.appendingPathComponent(name)
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            let descriptor = try FileDescriptor.open(directory.path.utf8, OpenFlags.path)
            return watch.add(directory: descriptor.number)
        }
        let first = try #require(try add("a"))
        for _ in 0..<10 { #expect(try add("a") == first) }
        let second = try #require(try add("b"))
        _ = try #require(try add("c"))
        #expect(try add("d") == nil)
        watch.remove(directory: second, isGone: false)
        #expect(try add("d") != nil && add("e") == nil)
    }
}
