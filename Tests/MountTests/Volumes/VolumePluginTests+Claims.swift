import Foundation
import Glibc
import TestSupport
import Testing

/// What a volume shows, and which processes still have it.
extension MountTests.VolumePlugin {
    /// Sends a call from another process.
    private func inBackground(_ call: String, _ body: String) throws -> Child {
        try Child([
            "curl", "-sS", "--max-time", "60", "--unix-socket", socket, "-X", "POST", "--data-binary", body,
            "http://plugin/VolumeDriver.\(call)",
        ])
    }

    /// Runs the plugin with faults.
    private func withStops() throws -> StopPoints {
        plugin.process.kill()
        let stops = try StopPoints(fixture)
        plugin.process = try Self.start(fixture, socket, Programs.grantfsWithFaults)
        return stops
    }

    @Test("A link in a volume's path is not followed")
    func linked() throws {
        let link = fixture.base + "/link"
        symlink(fixture.base, link)
        let path = link + data.dropFirst(fixture.base.count)
        let refused = try refusal(of: "one", ["path": path])
        #expect(refused.contains("there is a link in the path") && refused.contains("-o path=\(data)"), "\(refused)")
        #expect(try names().isEmpty && fixture.list("--all").isEmpty)
        try create("one", ["path": data + "//./"])
        try create("file", ["path": data + "/file"])
    }

    @Test("Two new volumes do not get one view")
    func raced() throws {
        let stops = try withStops()
        stops.arm("volume-claimed")
        let shown = try inBackground("Create", #"{"Name":"other","Opts":{"view":"one"}}"#)
        try stops.awaitStop("volume-claimed")
        let own = try inBackground("Create", #"{"Name":"one","Opts":{"path":"\#(data)"}}"#)
        // Without protection the second is made meanwhile.
        let deadline = DispatchTime.now() + 1
        while DispatchTime.now() < deadline, try fixture.list("--all").isEmpty { usleep(10_000) }
        stops.goOn("volume-claimed")
        _ = (shown.wait(), own.wait())
        #expect(try names().count <= 1)
    }

    @Test("Options are compared as bytes")
    func compared() throws {
        try create("one", ["path": data, "name": "caf\u{e9}"])
        #expect(try refusal(of: "one", ["path": data, "name": "cafe\u{301}"]).contains("with other options"))
    }

    @Test("An interrupted attempt is not completed with a later end")
    func extended() throws {
        try create("one", ["path": data, "ttl": "2h"])
        try interrupt()
        try fixture.grantfs("set", "--view", "one", "data", "--expires", "3d").orThrow()
        plugin.process = try Self.start(fixture, socket)
        #expect(try refusal(of: "one", ["path": data, "ttl": "2h"]).contains("has a grant named “data” already"))
        try fixture.grantfs("set", "--view", "one", "data", "--expires", "1h").orThrow()
        try create("one", ["path": data, "ttl": "2h"])
    }

    @Test("A plugin that ends leaves another's socket")
    func replaced() throws {
        unlink(socket)
        let other = try Child([
            "python3", "-c",
            "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); print('bound', flush=True); time.sleep(1000)",
            socket,
        ])
        try other.expect("bound")
        Glibc.kill(plugin.process.pid, SIGTERM)
        _ = plugin.process.wait()
        #expect(access(socket, F_OK) == 0)
    }

    @Test("Two hundred engines may connect before one sends its call", .enabled(if: Command.exists("python3"), "needs python3"))
    func crowded() throws {
        let script = """
            import socket, sys
            all = []
            for _ in range(200):
                one = socket.socket(socket.AF_UNIX)
                one.connect(sys.argv[1])
                all.append(one)
            for one in all: one.sendall(b'POST /Plugin.Activate HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n')
            print(sum(b'VolumeDriver' in one.recv(4096) for one in all))
            """
        #expect(try Command.run(["python3", "-c", script, socket]).text == "200\n")
    }

    @Test("A removal that is interrupted leaves no volume without its directory")
    func halfRemoved() throws {
        let stops = try withStops()
        try create("one", ["path": data])
        stops.arm("volume-withdrawn")
        let removal = try inBackground("Remove", #"{"Name":"one"}"#)
        try stops.awaitStop("volume-withdrawn")
        plugin.process.kill()
        removal.kill()
        plugin.process = try Self.start(fixture, socket)
        #expect(try !call("Mount", ["Name": "one", "ID": "a"]).error.isEmpty)
        try create("one", ["path": data])
        #expect(try fixture.list("--view", "one").count == 1)
    }

    @Test("A volume is not removed while a container that uses it starts")
    func starting() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        #expect(try call("Remove", ["Name": "one"]).error.contains("a container that uses it is starting"))
        #expect(read(place + "/data/file") == 0)
        try done("Unmount", "one", ["ID": "a"])
        try done("Remove", "one")
    }

    @Test("A volume that only a namespace without processes has is not removed", .enabled(if: Identity.isRoot, "needs root"))
    func pinned() throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let inside = try fixture.directory("inside")
        let script = "mount --bind '\(place)' '\(inside)' && umount '\(place)' && echo bound && exec sleep 1000"
        let container = try Child(["unshare", "-m", "--propagation", "private", "sh", "-c", script])
        try container.expect("bound")
        let namespace = open("/proc/\(container.pid)/ns/mnt", O_RDONLY | O_CLOEXEC)
        container.kill()
        try done("Unmount", "one", ["ID": "a"])
        #expect(try call("Remove", ["Name": "one"]).error.contains("a mount namespace without processes has its mount"))
        #expect(try fixture.list("--view", "one").count == 1)
        close(namespace)
        try fixture.wait(until: "it can be removed") { try call("Remove", ["Name": "one"]).error.isEmpty }
    }

    /// Keeps the mount at argument 1 in a mount namespace of its own, with the root directory of argument 2.
    private static let holder = """
        import ctypes, os, subprocess, sys, threading, time
        place, root, kind = sys.argv[1:]
        def hold():
            print('bound', flush=True)
            time.sleep(1000)
        if kind == 'copy': hold()
        if kind == 'recursive':
            subprocess.run(['mount', '--rbind', '/', root], check=True)
            os.chroot(root)
            hold()
        for command in (['mount', '-t', 'tmpfs', 'none', root], ['mkdir', '-p', root + place, root + '/empty'],
                        ['mount', '--bind', place, root + place], ['umount', place]): subprocess.run(command, check=True)
        hidden, hid = os.pipe()
        if os.fork() != 0:
            # The first process of the namespace sees none of its mounts.
            os.chroot(root + '/empty')
            os.write(hid, b'x')
            time.sleep(1000)
        os.read(hidden, 1)
        os.chroot(root)
        if kind == 'chrooted': hold()
        threading.Thread(target=hold).start()
        # The first thread alone.
        ctypes.CDLL(None).syscall(60, 0)
        """

    @Test(
        "Containers differ from copies of the host's mounts",
        .enabled(if: Identity.isRoot && Command.exists("python3"), "needs root and python3"),
        arguments: ["copy", "recursive", "chrooted", "exited"])
    func ofTheSamePath(kind: String) throws {
        try create("one", ["path": data])
        let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
        let root = try fixture.directory("root")
        let container = try Child(
            ["unshare", "-m", "--propagation", "private", "python3", "-c", Self.holder, place, root, kind])
        defer { container.kill() }
        try container.expect("bound")
        let isCopy = kind == "copy" || kind == "recursive"
        // As if the engine was killed: an unmount would end the copies as well. A new plugin has seen no start.
        if isCopy { try restart() } else { try done("Unmount", "one", ["ID": "a"]) }
        let error = try call("Remove", ["Name": "one"]).error
        #expect(isCopy ? error.isEmpty : error.contains("it is in use by process"), "\(error)")
    }
}
