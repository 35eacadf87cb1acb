import Foundation
import Glibc
import TestSupport
import Testing

/// The program of the release before this one, out of its package (`Tests/Fixtures`).
private struct PreviousRelease {
    let fixture: MountFixture
    let program: String
    let daemon: String

    static let package = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Fixtures/previous-release_amd64.deb").path
    /// Whether it runs here: it is built for one processor, and for the libraries of one Debian.
    static let runs = { () -> Bool in
        let place = NSTemporaryDirectory() + "grantfs-test.previous-\(getpid())"
        defer { try? FileManager.default.removeItem(atPath: place) }
        guard (try? Command.run(["dpkg-deb", "-x", package, place]))?.status == 0 else { return false }
        return (try? Command.run([place + "/usr/bin/grantfs", "--version"]))?.status == 0
    }()

    init(_ fixture: MountFixture) throws {
        self.fixture = fixture
        try Command.run(["dpkg-deb", "-x", Self.package, fixture.base + "/previous"]).orThrow()
        program = fixture.base + "/previous/usr/bin/grantfs"
        daemon = fixture.base + "/previous/usr/libexec/grantfs/grantfsd"
    }

    func run(_ arguments: String...) throws -> Output {
        try Command.run([program] + arguments, environment: fixture.environment, within: 60)
    }

    /// Of the daemon of a mount.
    static func program(of daemon: pid_t) throws -> String {
        try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(daemon)/exe")
    }
}

extension MountTests {
    @Suite("A mount of the previous release", .enabled(if: PreviousRelease.runs, "its package is for another processor or Debian"))
    struct AMountOfThePreviousRelease {
        /// The directory a with a file, granted, and mounted by the previous release.
        private func mounted(options: String) throws -> (PreviousRelease, mount: String, file: Int32) {
            let fixture = try MountFixture()
            let previous = try PreviousRelease(fixture)
            let source = try fixture.source("a")
            try Data(repeating: 0x61, count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
            try previous.run("grant", source).orThrow()
            let mount = fixture.base + "/mount"
            mkdir(mount, 0o755)
            try previous.run("mount", "default", mount, "-o", options).orThrow()
            let file = open(mount + "/a/file", O_RDWR)
            #expect(file >= 0 && flock(file, LOCK_EX) == 0)
            return (previous, mount, file)
        }

        @Test(
            "An upgrade from the previous release keeps open files and locks",
            arguments: ["rw", "cache=exclusive", "recover"])
        func upgraded(options: String) throws {
            let (previous, mount, file) = try mounted(options: options)
            defer { close(file) }
            let fixture = previous.fixture
            #expect(try PreviousRelease.program(of: fixture.daemon(at: mount)) == previous.daemon)
            for _ in 0..<2 {
                let upgrade = try fixture.grantfs("upgrade", mount)
                #expect(upgrade.status == 0, "\(upgrade)")
                #expect(try PreviousRelease.program(of: fixture.daemon(at: mount)) != previous.daemon)
            }
            var byte: UInt8 = 0
            #expect(pread(file, &byte, 1, 8191) == 1 && byte == 0x61 && pwrite(file, "b", 1, 0) == 1)
            let other = open(mount + "/a/file", O_RDWR)
            defer { close(other) }
            #expect(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK)
            #expect(try fixture.revoke("a").allSatisfy { $0.mounts.allSatisfy { $0.confirmed } })
            #expect(pread(file, &byte, 1, 0) == -1 && errno == EACCES)
        }

        @Test("An upgrade from the previous release keeps a claim")
        func claimed() throws {
            let (previous, mount, file) = try mounted(options: "rw")
            defer { close(file) }
            let fixture = previous.fixture
            let claimant = try Child(
                [Programs.grantfs, "coordinate", "write", "a", "--", "sh", "-c", "echo held; read -r line"],
                environment: fixture.environment)
            try claimant.expect("held")
            let upgrade = try fixture.grantfs("upgrade", mount)
            #expect(upgrade.status == 0, "\(upgrade)")
            #expect(try PreviousRelease.program(of: fixture.daemon(at: mount)) != previous.daemon)
            let other = try fixture.grantfs("coordinate", "write", "a", "--timeout", "0.3", "--", "true")
            #expect(other.status == 1 && other.errors.contains("others hold it"), "\(other)")
            claimant.send("")
            #expect(claimant.wait() == 0)
            #expect(try fixture.grantfs("coordinate", "write", "a", "--", "true").status == 0)
        }

        @Test("A return to the previous release succeeds, or is refused by the version")
        func back() throws {
            let (previous, mount, file) = try mounted(options: "rw")
            defer { close(file) }
            let fixture = previous.fixture
            #expect(try fixture.grantfs("upgrade", mount).status == 0)
            let daemon = try fixture.daemon(at: mount)
            let back = try previous.run("upgrade", mount)
            if back.status != 0 {
                #expect(back.status == 1 && back.errors.contains("version"), "\(back)")
                try fixture.wait(until: "it is on record again") { try fixture.daemon(at: mount) == daemon }
            }
            var byte: UInt8 = 0
            #expect(pread(file, &byte, 1, 0) == 1)
        }

        @Test("A daemon of the previous release obeys commands of this release")
        func commands() throws {
            let (previous, mount, file) = try mounted(options: "rw")
            let fixture = previous.fixture
            #expect(try fixture.status().mounts.map(\.mountpoint) == [mount])
            #expect(try fixture.revoke("a").allSatisfy { $0.mounts.allSatisfy { $0.confirmed } })
            var byte: UInt8 = 0
            #expect(pread(file, &byte, 1, 0) == -1 && errno == EACCES)
            close(file)
            // Programs that other tests start just now may have the file for a moment.
            try fixture.wait(until: "it is unmounted") { try fixture.grantfs("unmount", mount).status == 0 }
        }
    }
}
