import Foundation
import GrantSystem
import Testing
import GrantViewTree

@Suite struct ANode {
    @Test("A file has one node until its last reference is dropped")
    func counting() throws {
        let place = try KnownPlace()
        try place.make("a")
        let id = try place.lookup("a")
        #expect(try place.lookup("a") == id)
        #expect(place.scope.count == 2 && place.tree.descriptorsInUse == 2)
        place.tree.forget(id, 1)
        #expect(place.tree.node(id) != nil)
        place.tree.forget(id, 1)
        #expect(place.tree.node(id) == nil)
        #expect(place.scope.count == 1 && place.tree.descriptorsInUse == 1)
    }

    @Test("A node ID is never used twice, and hard links share one")
    func ids() throws {
        let place = try KnownPlace()
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

    @Test("A reused inode number gets another node")
    func reuse() throws {
        let place = try KnownPlace()
        var ids: Set<UInt64> = []
        for _ in 0..<50 {
            try place.make("a")
            let id = try place.lookup("a")
            #expect(ids.insert(id).inserted)
            try FileManager.default.removeItem(atPath: place.path + "/a")
        }
    }

    @Test("A pinned node keeps its descriptor after the kernel forgets it")
    func pinning() throws {
        let place = try KnownPlace()
        try place.make("a")
        let id = try place.lookup("a")
        let node = try #require(place.tree.node(id))
        let descriptor = place.tree.pin(node)
        #expect(descriptor >= 0)
        place.tree.forget(id, 1)
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        #expect(place.tree.release(place.scope))
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        place.tree.unpin(id, node)
        #expect(place.tree.node(id) == nil)
        #expect(place.tree.descriptorsInUse == 0)
    }

    @Test("A node of a released scope keeps no descriptor once it is unpinned")
    func releasing() throws {
        let place = try KnownPlace()
        try place.make("a")
        let id = try place.lookup("a")
        let node = try #require(place.tree.node(id))
        _ = place.tree.pin(node)
        #expect(!place.tree.release(place.scope))
        place.tree.unpin(id, node)
        #expect(place.tree.release(place.scope))
        #expect(place.tree.descriptorsInUse == 0)
        #expect(place.tree.pin(node) == -ESTALE)
        place.tree.unpin(id, node)
    }

    @Test("A node beyond the budget lends its descriptor and is found by handle", .enabled(if: getuid() == 0, "needs root"))
    func budget() throws {
        let place = try KnownPlace(descriptorLimit: 64)
        var ids: [UInt64] = []
        for number in 0..<500 {
            try place.make("f\(number)")
            ids.append(try place.lookup("f\(number)"))
        }
        #expect(place.tree.descriptorsInUse <= 65)
        for (number, id) in ids.enumerated() {
            let node = try #require(place.tree.node(id))
            let pinned = place.tree.pin(node)
            #expect(pinned >= 0)
            let descriptor = FileDescriptor(owning: dup(pinned))
            // By its contents: a file opened by a handle has a path only as long as the kernel
            // keeps its name.
            #expect(try String(contentsOfFile: "/proc/self/fd/\(descriptor.number)", encoding: .utf8) == "f\(number)")
            place.tree.unpin(id, node)
        }
        #expect(place.tree.descriptorsInUse <= 65)
        // A file that is gone is not found again, and no other one in its place.
        try FileManager.default.removeItem(atPath: place.path + "/f0")
        try place.make("f0")
        let first = try #require(place.tree.node(ids[0]))
        let pinned = place.tree.pin(first)
        if pinned >= 0 {
            let descriptor = FileDescriptor(owning: dup(pinned))
            #expect(try descriptor.status().st.st_nlink == 0)
        } else {
            #expect(pinned == -ESTALE)
        }
        place.tree.unpin(ids[0], first)
    }

    @Test("Many threads that look up and forget the same files leave nothing behind")
    func threads() throws {
        let place = try KnownPlace()
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
        #expect(place.scope.count == 1 && place.tree.descriptorsInUse == 1 && place.tree.nodes.count == 1)
    }
}

@Suite struct InodeNumbers {
    @Test("The first filesystem keeps its inode numbers, and others get distinct ones")
    func apart() {
        let numbers = InodeNumbering()
        for device: UInt64 in [7, 8, 9] { numbers.add(device: device) }
        let shown = [(12, 7), (1, 7), (12, 8), (12, 9), (12, 7)].map { numbers.shown(inode: $0.0, device: $0.1) }
        #expect(shown[0] == 12)
        #expect(shown[1] != 1)
        #expect(shown[2] != 12)
        #expect(shown[3] != shown[2])
        #expect(shown[4] == 12)
    }

    @Test("Shown inode numbers do not depend on the order of lookups")
    func inAnyOrder() {
        let files: [(UInt64, UInt64)] = [(12, 7), (12, 8), (12, 9), (1 << 40, 8), (12, 0x801), (13, 0x802), (12, 0x803)]
        func shown(_ files: [(UInt64, UInt64)]) -> [UInt64] {
            let numbers = InodeNumbering()
            for device: UInt64 in [7, 8, 9] { numbers.add(device: device) }
            return files.map { numbers.shown(inode: $0.0, device: $0.1) }
        }
        #expect(shown(files) == shown(files.reversed()).reversed())
        #expect(Set(shown(files)).count == files.count)
    }
}
