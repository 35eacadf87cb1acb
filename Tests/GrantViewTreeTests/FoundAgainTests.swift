import CGrantSystem
import Foundation
import GrantSystem
import Testing

@testable import GrantViewTree

/// Nodes whose descriptors were lent, on filesystems that use numbers again.
@Suite("Nodes that are found again", .enabled(if: getuid() == 0, "needs root"))
struct ANodeFoundAgain {
    /// Makes and looks up so many files that every other node has lent its descriptor.
    private func exhaust(_ place: KnownPlace, except node: UnsafeMutablePointer<Node>) throws {
        for number in 0..<200 {
            try place.make("filler\(number)")
            _ = try place.lookup("filler\(number)")
        }
        #expect(node.pointee.pinState.load(ordering: .acquiring) == 0, "its descriptor is lent")
    }

    @Test("A handle that leads to another file makes the node stale")
    func anothersHandle() throws {
        let place = try KnownPlace(descriptorLimit: 8)
        for name in ["own", "another"] { try place.make(name) }
        let id = try place.lookup("own")
        let node = try #require(place.tree.node(id))
        // As from a filesystem that gives handles again.
        var handle = clinux_handle()
        let another = try FileDescriptor.open((place.path + "/another").utf8, OpenFlags.path)
        #expect(clinux_name_to_handle(another.number, &handle) == 0)
        node.pointee.handle.store(handle)
        try exhaust(place, except: node)
        #expect(place.tree.pin(node) == -ESTALE)
        place.tree.unpin(id, node)
    }

    @Test("A node is not mistaken for a new file with its inode number")
    func usedNumber() throws {
        let place = try KnownPlace(descriptorLimit: 8)
        try place.make("old")
        let inode = try FileDescriptor.open((place.path + "/old").utf8, OpenFlags.path).status().st.st_ino
        let old = try place.lookup("old")
        try exhaust(place, except: try #require(place.tree.node(old)))
        try FileManager.default.removeItem(atPath: place.path + "/old")
        for number in 0..<2_000 {
            try place.make("new\(number)")
            let made = try FileDescriptor.open((place.path + "/new\(number)").utf8, OpenFlags.path).status().st.st_ino
            if made != inode { continue }
            #expect(try place.lookup("new\(number)") != old)
            return
        }
        try Test.cancel("the filesystem of /tmp does not use inode numbers again")
    }
}
