import Foundation
import Glibc

/// A filesystem that a fixture mounts and unmounts. Needs root.
public struct Volume {
    public enum Kind: String, CaseIterable, Sendable {
        case ext4, xfs, btrfs, tmpfs
        /// Whether its files survive an unmount.
        public var lasts: Bool { self != .tmpfs }
    }

    public let kind: Kind
    /// The mountpoint.
    public let place: String
    private let image: String
    private let fixture: MountFixture

    /// The kinds that this machine can make.
    public static var kinds: [Kind] { Kind.allCases.filter { $0 == .tmpfs || Command.exists("mkfs.\($0)") } }

    /// Makes and mounts it at `name` below the fixture's directory. The fixture's owner owns its
    /// root.
    public init(_ kind: Kind, at name: String, in fixture: MountFixture) throws {
        self.kind = kind
        self.fixture = fixture
        image = fixture.base + "/\(name).image"
        place = try fixture.directory(name)
        if kind.lasts {
            // The smallest sizes that the mkfs programs accept.
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

    /// Runs umount(8), not lazily, and returns its output. A process that inspects all mounts makes
    /// it busy for a moment, so the call is retried for some seconds.
    public func unmount() throws -> Output {
        for _ in 0..<250 {
            let output = try Command.run(["umount", place])
            if output.status == 0 { return output }
            pause(milliseconds: 20)
        }
        return try Command.run(["umount", place])
    }
}
