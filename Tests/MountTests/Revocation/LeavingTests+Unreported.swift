import Foundation
import Glibc
import TestSupport
import Testing

// Moves that no daemon was told, or that it was told before it knew the file.
extension MountTests.LeavingTests {
    /// When a file is moved: before the next daemon watches the host, or before it watches each
    /// directory.
    static let moments = ["unwatched", "watched"]

    @Test(
        "A file moved out of its grant between two daemons is refused",
        arguments: [(Succession.Way.upgrade, "shared"), (.upgrade, "exclusive"), (.death, "shared"), (.death, "none")], moments)
    func betweenDaemons(_ way: (Succession.Way, cache: String), moment: String) throws {
        let scene = try Succession(way.0, cache: way.cache, stops: true)
        let outside = try scene.fixture.directory("outside")
        for name in ["moved", "stays", "d/f"] { try Self.write(scene.source + "/" + name) }
        let (moved, stays) = (try HeldPath(scene.mount + "/a/moved"), try HeldPath(scene.mount + "/a/stays"))
        let (directory, below) = (try HeldPath(scene.mount + "/a/d"), try HeldPath(scene.mount + "/a/d/f"))
        let holder = try scene.holder(["map", "fd"])
        #expect(try Succession.said(holder).hasPrefix("map read fd read"))
        try scene.replaceDaemon(at: moment) {
            for name in ["moved", "d", "file"] { try #require(rename(scene.source + "/" + name, outside + "/" + name) == 0) }
        }
        // The first call waits for the next daemon.
        #expect(moved.read() == EACCES)
        #expect(below.read() == EACCES)
        #expect(directory.list() == EACCES)
        #expect(stays.read() == 0)
        try scene.fixture.wait(until: "the open file is refused") { try Succession.said(holder).hasPrefix("map SIGBUS fd EACCES") }
        #expect(stays.read() == 0)
    }

    @Test("A file moved out of its grant is refused although the report was lost", .enabled(if: Identity.isRoot))
    func lostReport() throws {
        let fixture = try MountFixture()
        // A filesystem of its own, so that no other daemon has the reports.
        let volume = try Volume(.tmpfs, at: "volume", in: fixture)
        for directory in ["a", "outside", "other"] { mkdir(volume.place + "/" + directory, 0o755) }
        for name in ["a/moved", "a/stays", "other/0"] { try Self.write(volume.place + "/" + name) }
        try fixture.grant(volume.place + "/a")
        let mount = try fixture.mount()
        let (moved, stays) = (try HeldPath(mount + "/a/moved"), try HeldPath(mount + "/a/stays"))
        #expect(moved.read() == 0)
        let daemon = try fixture.daemon(at: mount)
        let queued = try #require(Int(Processes.kernelText("/proc/sys/fs/fanotify/max_queued_events").filter(\.isNumber)))
        kill(daemon, SIGSTOP)
        do {
            defer { kill(daemon, SIGCONT) }
            for number in 0..<queued + 1_000 { rename("\(volume.place)/other/\(number)", "\(volume.place)/other/\(number + 1)") }
            try #require(rename(volume.place + "/a/moved", volume.place + "/outside/moved") == 0)
        }
        try fixture.wait(until: "it is refused") { moved.attributes() == EACCES }
        #expect(moved.read() == EACCES && stays.read() == 0)
    }

    @Test("A file moved out of its grant while it is made is refused", .enabled(if: Identity.isRoot))
    func overtaken() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        let outside = try fixture.directory("outside")
        try Self.write(source + "/known")
        try fixture.grant(source)
        let stops = try StopPoints(fixture)
        let mount = try fixture.mount()
        let known = try HeldPath(mount + "/a/known")
        stops.arm("entering")
        // It keeps only a descriptor that names the file.
        let maker = try Child([
            "python3", "-I", "-c",
            """
            import os, sys
            file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            path = os.open(f'/proc/self/fd/{file}', os.O_PATH); os.close(file)
            for line in sys.stdin:
                try: os.close(os.open(f'/proc/self/fd/{path}', os.O_RDONLY)); print(0, flush=True)
                except OSError as error: print(error.errno, flush=True)
            """, mount + "/a/made",
        ])
        try stops.awaitStop("entering")
        try #require(rename(source + "/made", outside + "/made") == 0)
        // Moves are reported in order.
        try #require(rename(source + "/known", outside + "/known") == 0)
        try fixture.wait(until: "the later move is known") { known.read() == EACCES }
        // The scan that follows a move has taken place.
        pause(milliseconds: 700)
        stops.goOn("entering")
        maker.send("read")
        try maker.expect("\(EACCES)")
    }

    @Test("A file moved out of a directory that two programs find together is refused", .enabled(if: Identity.isRoot))
    func foundTogether() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        let outside = try fixture.directory("outside")
        try Self.write(source + "/d/f")
        try fixture.grant(source)
        let stops = try StopPoints(fixture)
        let mount = try fixture.mount()
        stops.arm("watching")
        let lister = try Child(["ls", "-l", mount + "/a"])
        try stops.awaitStop("watching")
        let held = try HeldPath(mount + "/a/d/f")
        try #require(rename(source + "/d/f", outside + "/f") == 0)
        // Without an open file, which a scan would find.
        try fixture.wait(until: "it is refused") { held.attributes() == EACCES }
        stops.goOn("watching")
        #expect(lister.wait() == 0)
    }

    private static func write(_ path: String) throws {
        mkdir((path as NSString).deletingLastPathComponent, 0o755)
        try Data(repeating: 0x61, count: 8192).write(to: URL(fileURLWithPath: path))
    }
}
