import Foundation
import TestSupport
import Testing

/// A datagram socket at a path, as journald and service managers have one.
final class DatagramSocket {
    private let descriptor: Int32

    init(at path: String) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let bound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
        guard bound == 0 else { throw TestFailure("bind \(path): \(String(cString: strerror(errno)))") }
    }

    deinit { close(descriptor) }

    /// The next datagram as text, or nil if none comes in time.
    func next(within milliseconds: Int32 = 10_000) -> String? {
        var item = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&item, 1, milliseconds) > 0 else { return nil }
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        return count < 0 ? nil : String(decoding: buffer.prefix(count), as: UTF8.self)
    }
}

extension MountTests {
    @Suite("The daemon as a service") struct Service {
        private let fixture: MountFixture

        init() throws {
            fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
        }

        @Test("A service notifies its manager when it is ready and when it ends")
        func notifying() throws {
            let path = fixture.base + "/notify"
            let manager = try DatagramSocket(at: path)
            let mountpoint = fixture.base + "/mount"
            let daemon = try Child(
                [Programs.grantfs, "mount", "-f", "default", mountpoint],
                environment: fixture.environment.merging(["NOTIFY_SOCKET": path]) { $1 })
            let ready = try #require(manager.next(), "READY=1")
            #expect(ready.split(separator: "\n").contains("READY=1") && ready.contains("STATUS="), "\(ready)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: mountpoint) == ["a"], "the mount answers by then")
            kill(daemon.pid, SIGTERM)
            #expect(try #require(manager.next()).split(separator: "\n").contains("STOPPING=1"))
            #expect(daemon.wait(within: 30) == 0)
        }

        @Test("A daemon started in the background does not notify the manager")
        func notNotifying() throws {
            let path = fixture.base + "/notify"
            let manager = try DatagramSocket(at: path)
            try Command.run(
                [Programs.grantfs, "mount", "default", fixture.base + "/mount"],
                environment: fixture.environment.merging(["NOTIFY_SOCKET": path]) { $1 }
            ).orThrow()
            #expect(manager.next(within: 300) == nil)
        }

        @Test(
            "A mount of root requires the capabilities to act as other users",
            .enabled(if: Identity.isRoot && Machine.offers("setpriv"), "needs root"),
            arguments: ["setpcap", "setuid", "setgid"])
        func identity(capability: String) throws {
            let words = ["setpriv", "--bounding-set=-\(capability)", Programs.grantfs, "mount", "default", fixture.base + "/mount"]
            let output = try Command.run(words + ["-o", "allow_other"], environment: fixture.environment)
            #expect(output.status == 1 && output.errors.contains("CAP_SETPCAP"), "\(output)")
            #expect(fixture.mountpoints.isEmpty)
            try Command.run(words, environment: fixture.environment).orThrow()
        }

        @Test("A service writes one journal entry with fields for each event", .enabled(if: Identity.isRoot, "needs root"))
        func journal() throws {
            let journal = try DatagramSocket(at: try fixture.directory("journal") + "/socket")
            // A /run of its own with the tests' socket as journald's. Mounts of other tests are detached there. Otherwise they would stay
            // mounted and their daemons would not notice an unmount.
            let daemon = try Child(
                [
                    "unshare", "-m", "sh", "-c",
                    """
                    grep -o ' /[^ ]*/grantfs-test[.][^ ]*' /proc/self/mountinfo | tac | while read -r place; do
                        umount --internal-only --no-canonicalize --lazy "$(printf '%b' "$place")"
                    done 2>/dev/null
                    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && mount --bind "$1/journal" /run/systemd/journal
                    JOURNAL_STREAM=1:1 exec "$2" mount -f default "$1/mount"
                    """, "sh", fixture.base, Programs.grantfs,
                ], environment: fixture.environment)
            let mounted = try #require(journal.next(), "the mount is in the journal")
            for line in [
                "PRIORITY=6", "SYSLOG_IDENTIFIER=grantfs", "GRANTFS_EVENT=mounted", "GRANTFS_VIEW=default",
                "GRANTFS_MOUNTPOINT=\(fixture.base)/mount",
            ] {
                #expect(mounted.split(separator: "\n").contains(Substring(line)), "\(line): \(mounted)")
            }
            try fixture.revoke("a")
            let revoked = try #require(journal.next())
            #expect(revoked.contains("GRANTFS_EVENT=revoked") && revoked.contains("GRANTFS_NAME=a\n"), "\(revoked)")
            kill(daemon.pid, SIGTERM)
            #expect(try #require(journal.next()).contains("GRANTFS_EVENT=unmounted"))
            #expect(daemon.wait(within: 30) == 0)
        }

        @Test("A service writes an expired grant to the journal", .enabled(if: Identity.isRoot, "needs root"))
        func expiry() throws {
            let journal = try DatagramSocket(at: try fixture.directory("journal") + "/socket")
            try fixture.grant(try fixture.source("e"), name: "e", "--expires", "2s")
            let daemon = try Child(
                [
                    "unshare", "-m", "sh", "-c",
                    """
                    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && mount --bind "$1/journal" /run/systemd/journal
                    exec "$2" mount -f default "$1/mount"
                    """, "sh", fixture.base, Programs.grantfs,
                ], environment: fixture.environment)
            var entry: String?
            for _ in 0..<20 where entry?.contains("GRANTFS_EVENT=expired") != true { entry = journal.next(within: 3_000) }
            let lines = try #require(entry).split(separator: "\n")
            for line in ["MESSAGE_ID=6d4b3a9a1e2c4f57a0d1b3a3f6c0e106", "GRANTFS_NAME=e", "GRANTFS_VIEW=default", "GRANTFS_UID=0"] {
                #expect(lines.contains(Substring(line)), "\(line): \(lines)")
            }
            kill(daemon.pid, SIGTERM)
            #expect(daemon.wait(within: 30) == 0)
        }

        @Test("Commands write their own changes to the journal", .enabled(if: Identity.isRoot, "needs root"))
        func acts() throws {
            let journal = try DatagramSocket(at: try fixture.directory("journal") + "/socket")
            let name = "b\nMESSAGE=forged"
            let source = try fixture.source(name)
            func grantfs(_ words: String...) throws {
                try Command.run(
                    [
                        "unshare", "-m", "sh", "-c",
                        """
                        mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && mount --bind "$1/journal" /run/systemd/journal
                        shift; exec "$@"
                        """, "sh", fixture.base, Programs.grantfs,
                    ] + words, environment: fixture.environment.merging(["SUDO_UID": "4242"]) { $1 }
                ).orThrow()
            }
            /// The next entry, when it is of this event.
            func entry(_ event: String) throws -> String {
                let text = try #require(journal.next(), "\(event) is in the journal")
                let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
                for line in ["GRANTFS_EVENT=\(event)", "GRANTFS_VIEW=default", "GRANTFS_UID=0", "PRIORITY=5", "SYSLOG_IDENTIFIER=grantfs"] {
                    #expect(lines.contains(Substring(line)), "\(line): \(text)")
                }
                #expect(!lines.contains("MESSAGE=forged"), "\(text)")
                // One number for each kind, which never changes.
                let number = ["granted": 1, "revoked": 2, "restored": 3, "removed": 4, "changed": 5][event] ?? 0
                #expect(lines.contains("MESSAGE_ID=6d4b3a9a1e2c4f57a0d1b3a3f6c0e10\(number)"), "\(text)")
                return text
            }
            // The kernel's login ID goes before that of sudo.
            let noted = UInt32(Processes.kernelText("/proc/self/loginuid").filter(\.isNumber)) ?? .max
            let login = noted == .max ? 4242 : noted
            try grantfs("grant", source, "--name", "b")
            let granted = try entry("granted")
            #expect(granted.contains("GRANTFS_NAME=b\n") && granted.contains("GRANTFS_LOGIN_UID=\(login)\n"), "\(granted)")
            #expect(granted.contains("uid 0 (login \(login))") && granted.contains("b\\nMESSAGE=forged"), "\(granted)")
            try grantfs("set", "b", "--access", "read-only")
            #expect(try entry("changed").contains("access read-write → read-only"))
            try grantfs("revoke", "b")
            _ = try entry("revoked")
            try grantfs("restore", "b")
            _ = try entry("restored")
            try grantfs("remove", "b")
            _ = try entry("revoked")
            _ = try entry("removed")
            let log = try fixture.log().filter { $0.name == "b" }
            #expect(log.map(\.event) == ["granted", "changed", "revoked", "restored", "revoked", "removed"])
            #expect(log.allSatisfy { $0.loginUid == login && $0.uid == 0 })
        }

        @Test("A daemon in the foreground writes its events to standard error")
        func standardError() throws {
            let words = [Programs.grantfs, "mount", "-f", "default", fixture.base + "/mount"]
            let daemon = try Child(["sh", "-c", "exec \"$@\" 2>&1 >/dev/null", "sh"] + words, environment: fixture.environment)
            #expect(try #require(daemon.line()).hasPrefix("grantfs: mounted "))
            try fixture.revoke("a")
            let revoked = try #require(daemon.line())
            #expect(revoked.hasPrefix("grantfs: ") && revoked.contains("“a”") && revoked.contains(" ms"), "\(revoked)")
            kill(daemon.pid, SIGTERM)
            #expect(try #require(daemon.line()).hasPrefix("grantfs: unmounted "))
            #expect(daemon.line() == nil && daemon.wait(within: 30) == 0)
        }
    }
}
