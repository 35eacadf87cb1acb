import Foundation
import Glibc
import TestSupport
import Testing

/// `grantfs oci-hook`, called as runtimes do for a process in a mount namespace of its own. `.ci/engines` runs Podman.
extension MountTests.VolumePlugin {
    /// A shell that stands for the first process of a container, and the container's bundle.
    private struct Container {
        let process: Child
        let bundle: String
        let id: String

        init(
            _ fixture: MountFixture, id: String = String(repeating: "5", count: 64), _ annotations: [String: Any],
            propagation: String = "private", users: String? = nil
        ) throws {
            self.id = id
            bundle = try fixture.directory("bundle-\(id.prefix(8))")
            try FileManager.default.createDirectory(atPath: bundle + "/root", withIntermediateDirectories: true)
            let settings: [String: Any] = ["root": ["path": "root"], "annotations": annotations]
            try JSONSerialization.data(withJSONObject: settings).write(to: URL(fileURLWithPath: bundle + "/config.json"))
            let script = #"echo ready; while read -r line; do eval "$line"; echo "status $?"; done"#
            let own = users == nil ? [] : ["--user"]
            process = try Child(["unshare", "-m", "--propagation", propagation] + own + ["sh", "-c", script], separateErrors: true)
            try process.expect("ready")
            for map in ["uid_map", "gid_map"] {
                try users?.write(toFile: "/proc/\(process.pid)/\(map)", atomically: false, encoding: .utf8)
            }
        }

        /// Runs a command in the container's namespace.
        func status(of command: String) throws -> String {
            process.send(command)
            return try #require(process.line())
        }

        var state: String { #"{"ociVersion":"1.0.2","id":"\#(id)","status":"created","pid":\#(process.pid),"bundle":"\#(bundle)"}"# }
        var end: String { #"{"ociVersion":"1.0.2","id":"\#(id)","status":"stopped","pid":0,"bundle":"\#(bundle)"}"# }
    }

    private static let view = "oci-555555555555"

    @discardableResult
    private func hook(_ state: String, allow: [String] = [], socket: String? = nil, in namespace: [String] = []) throws -> Output {
        let words = allow.flatMap { ["--allow", $0] }
        return try Command.run(
            namespace + [Programs.grantfs, "oci-hook", "--socket", socket ?? self.socket] + words, environment: fixture.environment,
            input: state)
    }

    @Test(
        "A container gets its view by annotations, and loses it at the end", .enabled(if: Identity.isRoot, "needs root"),
        // Podman has a mount namespace of its own for containers with a user namespace.
        arguments: [[], ["unshare", "-m", "--propagation", "private"]])
    func hooked(in namespace: [String]) throws {
        let container = try Container(fixture, ["grantfs.destination": "/a/b", "grantfs.path": data, "grantfs.ro": "true", "other": "x"])
        defer { container.process.kill() }
        try hook(container.state, allow: ["/nowhere", fixture.base], in: namespace).orThrow()
        let place = container.bundle + "/root/a/b"
        #expect(try container.status(of: "exec 9< \(place)/data/file") == "status 0")
        #expect(try container.status(of: "(: > \(place)/data/new) 2> /dev/null") != "status 0")
        // The host has no mount there.
        #expect(access(place, F_OK) == 0 && access(place + "/data", F_OK) != 0)
        try fixture.grantfs("grant", "--view", Self.view, try fixture.source("more")).orThrow()
        #expect(try container.status(of: "test -d \(place)/more") == "status 0")
        try fixture.grantfs("revoke", "--view", Self.view, "data").orThrow()
        #expect(try container.status(of: "cat <&9 2> /dev/null") == "status 1")
        container.process.kill()
        try hook(container.end).orThrow()
        #expect(try names().isEmpty && fixture.list("--all").isEmpty)
        // The end of a container without a view.
        try hook(container.end).orThrow()
    }

    @Test(
        "Files have the owners of the container's user namespace",
        .enabled(if: Machine.mapsOwners, "needs root and a filesystem that maps owners"))
    func ownersOfNamespace() throws {
        chown(data + "/file", 33, 8)
        let annotations = ["grantfs.destination": "/data", "grantfs.path": data, "grantfs.map": "container"]
        let container = try Container(fixture, annotations, users: "0 100000 1000")
        defer { container.process.kill() }
        try hook(container.state, allow: [data]).orThrow()
        let file = container.bundle + "/root/data/data/file"
        #expect(try container.status(of: "test $(stat -c %u:%g \(file)) = 33:8") == "status 0")
        try hook(container.end).orThrow()
        // One with the host's users.
        let plain = try Container(fixture, annotations)
        defer { plain.process.kill() }
        try hook(plain.state, allow: [data]).orThrow()
        #expect(try plain.status(of: "test $(stat -c %u:%g \(plain.bundle)/root/data/data/file) = 33:8") == "status 0")
        try hook(plain.end).orThrow()
    }

    @Test("An annotation maps no chosen owners", arguments: ["grantfs.map", "grantfs.map-groups"])
    func chosenOwners(name: String) throws {
        let container = try Container(fixture, ["grantfs.destination": "/data", "grantfs.path": data, name: "0:1000:1"])
        defer { container.process.kill() }
        let refused = try hook(container.state, allow: [data])
        #expect(refused.status != 0 && refused.errors.contains("grantfs.map=container"), "\(refused)")
        #expect(try names().isEmpty)
    }

    @Test("What a container has passed on ends with it", .enabled(if: Identity.isRoot, "needs root"))
    func passedOn() throws {
        let container = try Container(fixture, ["grantfs.destination": "/data", "grantfs.path": data])
        try hook(container.state, allow: [data]).orThrow()
        let directory = open("/proc/\(container.process.pid)/root\(container.bundle)/root/data", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        let file = openat(directory, "data/file", O_RDONLY | O_CLOEXEC)
        defer { for descriptor in [directory, file] { close(descriptor) } }
        var byte: UInt8 = 0
        #expect(pread(file, &byte, 1, 0) == 1)
        container.process.kill()
        try hook(container.end).orThrow()
        #expect(try names().isEmpty && fixture.list("--all").isEmpty)
        #expect(pread(file, &byte, 1, 0) == -1)
        // Of the view that the next container of this id has.
        try fixture.grantfs("grant", "--view", Self.view, data).orThrow()
        #expect(openat(directory, "data/file", O_RDONLY | O_CLOEXEC) == -1)
    }

    @Test("A volume of another container is not ended", .enabled(if: Identity.isRoot, "needs root"))
    func ofAnother() throws {
        // The first twelve digits are the same.
        let other = String(repeating: "5", count: 63) + "6"
        for options in [["path": data], ["path": data, "container": other]] {
            try create(Self.view, options)
            let container = try Container(fixture, ["grantfs.destination": "/data"])
            defer { container.process.kill() }
            for state in [container.state, container.end] { #expect(try hook(state).errors.contains("is not of the container")) }
            #expect(try fixture.list("--view", Self.view).count == 1)
            try done("Remove", Self.view)
        }
    }

    @Test("A view is not mounted on the host", .enabled(if: Identity.isRoot, "needs root"), arguments: [false, true])
    func onTheHost(isShared: Bool) throws {
        let container = try Container(fixture, ["grantfs.destination": "/data"], propagation: isShared ? "shared" : "private")
        defer { container.process.kill() }
        // Its own process is in the host's namespace.
        let state = isShared ? container.state : container.state.replacingOccurrences(of: "\(container.process.pid)", with: "\(getpid())")
        let refused = try hook(state)
        #expect(refused.status != 0 && refused.errors.contains("Invalid argument"), "\(refused)")
        #expect(try names().isEmpty)
    }

    @Test("A container that starts again under its id gets no earlier grants", .enabled(if: Identity.isRoot, "needs root"))
    func restarted() throws {
        let annotations = ["grantfs.destination": "/data"]
        do {
            let container = try Container(fixture, annotations)
            try hook(container.state).orThrow()
            try fixture.grantfs("grant", "--view", Self.view, data).orThrow()
            container.process.kill()
        }
        // The runtime was killed before it called the hook for the end.
        let container = try Container(fixture, annotations)
        defer { container.process.kill() }
        try hook(container.state).orThrow()
        #expect(try container.status(of: "test -e \(container.bundle)/root/data/data") == "status 1")
        #expect(try fixture.list("--all").isEmpty)
    }

    @Test(
        "Refused annotations prevent a start, and leave nothing",
        .enabled(if: Identity.isRoot, "needs root"),
        arguments: [
            (["destination": "/data", "path": "/etc"], "the hook does not allow it"),
            (["destination": "/data", "path": "BASE/../../etc"], "the hook does not allow it"),
            (["destination": "/data", "path": "BASE/link/ssl"], "there is a link in the path"),
            (["destination": "/data", "path": "BASE/none"], "there is no such directory"),
            (["destination": "/data", "view": "default"], "unknown annotation"),
            (["destination": "/data", "colour": "red"], "unknown option"),
            (["destination": "/data/../../x"], "invalid place"), (["destination": "/"], "invalid place"),
            (["destination": "data"], "invalid place"),
            (["destination": "/data", "container": "x"], "unknown annotation"),
            (["destination": "/file", "path": "BASE"], "Not a directory"),
            (["path": "BASE"], "grantfs.destination is missing"),
        ] as [([String: String], String)])
    func refusedAnnotations(_ given: [String: String], _ reason: String) throws {
        symlink("/etc", data + "/link")
        var annotations: [String: String] = [:]
        for (name, value) in given { annotations["grantfs." + name] = value.replacingOccurrences(of: "BASE", with: data) }
        let container = try Container(fixture, annotations)
        defer { container.process.kill() }
        try "".write(toFile: container.bundle + "/root/file", atomically: false, encoding: .utf8)
        let refused = try hook(container.state, allow: [data])
        #expect(refused.status != 0 && refused.errors.contains(reason), "\(refused)")
        #expect(try names().isEmpty && fixture.list("--all").isEmpty)
    }

    @Test("Links of an image do not lead out of it", .enabled(if: Identity.isRoot, "needs root"))
    func imageWithLinks() throws {
        let outside = try fixture.directory("outside")
        let container = try Container(fixture, ["grantfs.destination": "/up/root/data", "grantfs.path": data])
        defer { container.process.kill() }
        symlink("../../.." + outside, container.bundle + "/root/up")
        let dangling = try hook(container.state, allow: [data])
        #expect(dangling.status != 0 && dangling.errors.contains("No such file"), "\(dangling)")
        try FileManager.default.createDirectory(atPath: container.bundle + "/root" + outside, withIntermediateDirectories: true)
        try hook(container.state, allow: [data]).orThrow()
        #expect(try FileManager.default.contentsOfDirectory(atPath: outside).isEmpty)
        #expect(try container.status(of: "test -e \(container.bundle)/root\(outside)/root/data/data/file") == "status 0")
    }

    @Test("Nothing is mounted in /proc, also by a link of the image", .enabled(if: Identity.isRoot, "needs root"))
    func inProc() throws {
        let container = try Container(fixture, ["grantfs.destination": "/link/self/attr"])
        defer { container.process.kill() }
        symlink("/proc", container.bundle + "/root/link")
        mkdir(container.bundle + "/root/proc", 0o755)
        #expect(try container.status(of: "mount -t proc proc '\(container.bundle)/root/proc'") == "status 0")
        let refused = try hook(container.state)
        #expect(refused.status != 0 && refused.errors.contains("Invalid argument"), "\(refused)")
        #expect(try names().isEmpty)
    }

    @Test(
        "A directory that is not mounted is not shown",
        .enabled(if: Identity.isRoot && Command.exists("python3"), "needs root and python3"))
    func unmounted() throws {
        // Answers each call as a plugin whose mount is missing.
        let script = """
            import socket, sys
            server = socket.socket(socket.AF_UNIX)
            server.bind(sys.argv[1])
            server.listen()
            print('ready', flush=True)
            while True:
                one = server.accept()[0]
                one.recv(65536)
                one.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n{"Err":"","Mountpoint":"' + sys.argv[2].encode() + b'"}')
                one.close()
            """
        let other = fixture.base + "/other.sock"
        let server = try Child(["python3", "-c", script, other, data])
        defer { server.kill() }
        try server.expect("ready")
        let container = try Container(fixture, ["grantfs.destination": "/data"])
        defer { container.process.kill() }
        let refused = try hook(container.state, socket: other)
        #expect(refused.status != 0 && refused.errors.contains("No such device"), "\(refused)")
        #expect(try container.status(of: "test -e \(container.bundle)/root/data/file") == "status 1")
    }

    @Test("A state that makes no sense, and a missing plugin, are errors")
    func badStates() throws {
        for state in ["", "{", "[]", #"{"id":"a"}"#, #"{"id":"a","status":"created","bundle":"/","pid":-1}"#] {
            let refused = try hook(state)
            #expect(refused.status != 0 && !refused.errors.isEmpty, "\(state)")
        }
        let unanswered = try hook(#"{"id":"a","status":"stopped","bundle":"/"}"#, socket: fixture.base + "/none.sock")
        #expect(unanswered.status != 0 && unanswered.errors.contains("systemctl start grantfs-volumes.socket"))
        // A container without annotations does not need the plugin.
        let state = #"{"id":"a","status":"created","pid":1,"bundle":"BUNDLE"}"#
        let bundle = try fixture.directory("plain")
        try #"{"root":{"path":"root"}}"#.write(toFile: bundle + "/config.json", atomically: false, encoding: .utf8)
        try hook(state.replacingOccurrences(of: "BUNDLE", with: bundle), socket: fixture.base + "/none.sock").orThrow()
    }
}
