import Foundation
import Glibc

/// A filesystem of its own that a fixture mounts and unmounts. Needs root.
public struct Volume {
    public enum Kind: String, CaseIterable, Sendable {
        case ext4, xfs, btrfs, tmpfs
        /// What is in it is still there after it was unmounted.
        public var lasts: Bool { self != .tmpfs }
    }

    public let kind: Kind
    /// Where it is mounted.
    public let place: String
    private let image: String
    private let fixture: MountFixture

    /// Those that can be made here.
    public static var kinds: [Kind] { Kind.allCases.filter { $0 == .tmpfs || Command.exists("mkfs.\($0)") } }

    /// Made and mounted at `name` below the fixture's directory, the fixture's owner owning its root.
    public init(_ kind: Kind, at name: String, in fixture: MountFixture) throws {
        self.kind = kind
        self.fixture = fixture
        image = fixture.base + "/\(name).image"
        place = try fixture.directory(name)
        if kind.lasts {
            // The least that each of them takes.
            try Command.run(["truncate", "-s", kind == .ext4 ? "32M" : "320M", image]).orThrow()
            try Command.run(["mkfs.\(kind)", "-q", kind == .ext4 ? "-F" : "-f", image]).orThrow()
        }
        try mount()
        chown(place, fixture.owner.uid, fixture.owner.gid)
    }

    public func mount() throws {
        let options = kind == .xfs ? "loop,nouuid" : "loop"
        try fixture.mountOther(kind.lasts ? ["mount", "-o", options, image] : ["mount", "-t", "tmpfs", "none"], at: place)
    }

    /// What umount(8) says without being lazy. Whoever looks at all mounts just now makes it busy for a moment, so it is tried for some seconds.
    public func unmount() throws -> Output {
        for _ in 0..<250 {
            let output = try Command.run(["umount", place])
            if output.status == 0 { return output }
            pause(milliseconds: 20)
        }
        return try Command.run(["umount", place])
    }
}
