import Foundation
import LinuxFS
import Testing
import ViewTree

/// A directory with files, and a tree that knows it as one scope.
private final class Place {
    let path: String
    let tree: NodeTree
    let scope: ScopeNodes

    init(descriptorLimit: Int = 1_000) throws {
        var template = Array("/tmp/grantfs-tree.XXXXXX".utf8CString)
        path = String(cString: try #require(mkdtemp(&template)))
        tree = NodeTree(descriptorLimit: descriptorLimit)
        // open_by_handle_at(2) needs CAP_DAC_READ_SEARCH.
        let base = getuid() == 0 ? try FileDescriptor.open(path.utf8, O_RDONLY | O_DIRECTORY) : nil
        scope = tree.addScope(1, handleBase: base, crossesMounts: false)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func make(_ name: String) throws { try Data(name.utf8).write(to: URL(fileURLWithPath: path + "/" + name)) }

    /// Looks a file up as an operation does.
    func lookup(_ name: String) throws -> UInt64 {
        let descriptor = try FileDescriptor.open((path + "/" + name).utf8, OpenFlags.path | O_NOFOLLOW)
        let status = try descriptor.status()
        let id = tree.intern(descriptor, status, in: scope)
        return try #require(id)
    }
}

@Suite struct ANode {
    @Test("is one for one file, counted, and gone with the last count")
    func counting() throws {
        let place = try Place()
        try place.make("a")
        let id = try place.lookup("a")
        #expect(try place.lookup("a") == id)
        #expect(place.scope.count == 1 && place.tree.descriptorsInUse == 1)
        place.tree.forget(id, 1)
        #expect(place.tree.nodes.find(id) != nil)
        place.tree.forget(id, 1)
        #expect(place.tree.nodes.find(id) == nil)
        #expect(place.scope.count == 0 && place.tree.descriptorsInUse == 0)
    }

    @Test("gets an id that no other node ever had, hard links sharing one")
    func ids() throws {
        let place = try Place()
        try place.make("a")
        try FileManager.default.linkItem(atPath: place.path + "/a", toPath: place.path + "/b")
        let first = try place.lookup("a")
        #expect(try place.lookup("b") == first)
        place.tree.forget(first, 2)
        var seen: Set<UInt64> = [first]
        for _ in 0..<1_000 {
            let id = try place.lookup("a")
            #expect(seen.insert(id).inserted)
            place.tree.forget(id, 1)
        }
    }

    @Test("an inode that is used again is another node")
    func reuse() throws {
        let place = try Place()
        var ids: Set<UInt64> = []
        for _ in 0..<50 {
            try place.make("a")
            let id = try place.lookup("a")
            #expect(ids.insert(id).inserted)
            try FileManager.default.removeItem(atPath: place.path + "/a")
        }
    }

    @Test("whoever pins it keeps its descriptor, also when the kernel forgets it meanwhile")
    func pinning() throws {
        let place = try Place()
        try place.make("a")
        let id = try place.lookup("a")
        let node = try #require(place.tree.nodes.find(id))
        let descriptor = place.tree.pin(node)
        #expect(descriptor >= 0)
        place.tree.forget(id, 1)
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        #expect(!place.tree.release(place.scope) || place.scope.count == 0)
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        place.tree.unpin(id, node)
        #expect(place.tree.nodes.find(id) == nil)
        #expect(place.tree.descriptorsInUse == 0)
    }

    @Test("lends its descriptor to others beyond the budget and finds its file again by handle", .enabled(if: getuid() == 0, "needs root"))
    func budget() throws {
        let place = try Place(descriptorLimit: 64)
        var ids: [UInt64] = []
        for number in 0..<500 {
            try place.make("f\(number)")
            ids.append(try place.lookup("f\(number)"))
        }
        #expect(place.tree.descriptorsInUse <= 65)
        for (number, id) in ids.enumerated() {
            let node = try #require(place.tree.nodes.find(id))
            let pinned = place.tree.pin(node)
            #expect(pinned >= 0)
            let descriptor = FileDescriptor(owning: dup(pinned))
            #expect(try String(decoding: descriptor.path(), as: UTF8.self).hasSuffix("/f\(number)"))
            place.tree.unpin(id, node)
        }
        #expect(place.tree.descriptorsInUse <= 65)
        // A file that is gone is not found again, and no other one in its place.
        try FileManager.default.removeItem(atPath: place.path + "/f0")
        try place.make("f0")
        let first = try #require(place.tree.nodes.find(ids[0]))
        let pinned = place.tree.pin(first)
        if pinned >= 0 {
            let descriptor = FileDescriptor(owning: dup(pinned))
            #expect(try descriptor.status().st.st_nlink == 0)
        } else {
            #expect(pinned == -ESTALE)
        }
        place.tree.unpin(ids[0], first)
    }

    @Test("many threads that look up and forget the same files leave nothing behind")
    func threads() throws {
        let place = try Place()
        for number in 0..<20 { try place.make("f\(number)") }
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for turn in 0..<2_000 {
                guard let id = try? place.lookup("f\((turn &* 7 &+ thread) % 20)") else { continue }
                if let node = place.tree.nodes.find(id) {
                    _ = place.tree.pin(node)
                    place.tree.unpin(id, node)
                }
                place.tree.forget(id, 1)
            }
        }
        #expect(place.scope.count == 0 && place.tree.descriptorsInUse == 0 && place.tree.nodes.count == 0)
    }
}

extension Place: @unchecked Sendable {}

@Suite struct InodeNumbers {
    @Test("are the filesystem's own for the first, and apart for every other")
    func apart() {
        let numbers = DeviceNumbers()
        #expect(numbers.shown(inode: 12, device: 7) == 12)
        #expect(numbers.shown(inode: 1, device: 7) != 1)
        #expect(numbers.shown(inode: 12, device: 8) != 12)
        #expect(numbers.shown(inode: 12, device: 9) != numbers.shown(inode: 12, device: 8))
        #expect(numbers.shown(inode: 12, device: 7) == 12)
    }
}
