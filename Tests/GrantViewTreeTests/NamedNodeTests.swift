import Foundation
import GrantSystem
import Synchronization
import Testing
import GrantViewTree

/// Nodes where the daemon may not open by handle.
@Suite struct ANodeFoundByName {
    /// A place with `directories` × 20 files in subdirectories, all looked up, with far fewer descriptors.
    private func crowded(_ directories: Int = 20) throws -> (place: KnownPlace, directories: [UInt64], files: [[UInt64]]) {
        let place = try KnownPlace(descriptorLimit: 32, byHandle: false)
        var (ids, files) = ([UInt64](), [[UInt64]]())
        for number in 0..<directories {
            let name = "d\(number)"
            try FileManager.default.createDirectory(atPath: place.path + "/" + name, withIntermediateDirectories: false)
            let id = try place.lookup(name)
            ids.append(id)
            files.append(
                try (0..<20).map { file in
                    try place.make("\(name)/f\(file)")
                    return try place.lookup("f\(file)", in: id, below: name + "/")
                })
        }
        return (place, ids, files)
    }

    /// Where a node's file is, or the error number of its opening.
    private func path(_ place: KnownPlace, _ id: UInt64) throws -> String {
        let node = try #require(place.tree.node(id))
        let pinned = place.tree.pin(node)
        defer { place.tree.unpin(id, node) }
        if pinned < 0 { return "\(pinned)" }
        let copy = FileDescriptor(owning: dup(pinned))
        return String(decoding: try copy.path(), as: UTF8.self)
    }

    /// Makes all of those above lend their descriptors. By directories, because files would be taken first.
    private func crowdOut(_ place: KnownPlace) throws {
        for number in 0..<200 {
            try FileManager.default.createDirectory(atPath: place.path + "/other\(number)", withIntermediateDirectories: false)
            _ = try place.lookup("other\(number)")
        }
    }

    @Test("A node that lent its descriptor is found again below lent directories")
    func again() throws {
        let (place, _, files) = try crowded()
        #expect(place.tree.descriptorsInUse <= 33)
        for (directory, list) in files.enumerated() {
            for (file, id) in list.enumerated() { #expect(try path(place, id).hasSuffix("/d\(directory)/f\(file)")) }
        }
        #expect(place.tree.descriptorsInUse <= 33)
    }

    @Test("A node that was renamed, replaced or removed on the host is stale")
    func stale() throws {
        let (place, directories, files) = try crowded()
        try crowdOut(place)
        rename(place.path + "/d1/f1", place.path + "/d1/moved")
        rename(place.path + "/d1/f2", place.path + "/d1/f3")
        unlink(place.path + "/d2/f1")
        try place.make("d2/f1")
        rename(place.path + "/d3", place.path + "/elsewhere")
        for id in [files[1][1], files[1][3], files[2][1], files[3][0], directories[3]] { #expect(try path(place, id) == "\(-ESTALE)") }
        // A new lookup finds the same node at its new place, and the nodes in it.
        #expect(try place.lookup("elsewhere") == directories[3])
        #expect(try path(place, files[3][0]).hasSuffix("/elsewhere/f0"))
    }

    @Test("A node is followed through renames by the mount")
    func moved() throws {
        let (place, directories, files) = try crowded()
        let (from, to) = (place.path + "/d4", place.path + "/d5")
        let directory = try FileDescriptor.open(from.utf8, OpenFlags.path)
        let held = try #require(place.tree.pinEntry("f7", in: directory.number, of: place.scope))
        rename(from + "/f7", to + "/seven")
        place.tree.moved(held, "seven", to: directories[5])
        place.tree.unpin(held)
        try crowdOut(place)
        #expect(try path(place, files[4][7]).hasSuffix("/d5/seven"))
    }

    @Test("A removed or open node keeps its descriptor")
    func kept() throws {
        let (place, directories, files) = try crowded()
        let directory = try FileDescriptor.open((place.path + "/d6").utf8, OpenFlags.path)
        let held = try #require(place.tree.pinEntry("f7", in: directory.number, of: place.scope))
        unlink(place.path + "/d6/f7")
        place.tree.removed(held, "f7", from: directories[6])
        place.tree.unpin(held)
        let opened = try #require(place.tree.node(files[6][8]))
        _ = try path(place, files[6][8])
        opened.pointee.openers.wrappingAdd(1, ordering: .relaxed)
        try crowdOut(place)
        unlink(place.path + "/d6/f8")
        #expect(try path(place, files[6][7]).hasSuffix("/d6/f7 (deleted)"))
        #expect(try path(place, files[6][8]).hasSuffix("/d6/f8 (deleted)"))
    }

    @Test("Nodes of many threads leave no names or descriptors in memory")
    func threads() throws {
        let place = try KnownPlace(descriptorLimit: 32, byHandle: false)
        for number in 0..<100 { try place.make("f\(number)") }
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for turn in 0..<1_000 {
                guard let id = try? place.lookup("f\((turn &* 7 &+ thread &* 31) % 100)") else { continue }
                if let node = place.tree.nodes.find(id) {
                    let pinned = place.tree.pin(node)
                    if pinned >= 0, fcntl(pinned, F_GETFD) < 0 { Issue.record("a pinned descriptor was closed") }
                    place.tree.unpin(id, node)
                }
                place.tree.forget(id, 1)
            }
        }
        #expect(place.tree.nodes.count == 1 && place.tree.descriptorsInUse == 1)
    }
}
