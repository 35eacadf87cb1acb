import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A group that may revoke in root's store, by the service that users reach.
    @Suite(
        .enabled(if: Identity.isRoot, "needs root"),
        .enabled(if: Machine.offers("systemd-socket-activate"), Comment(rawValue: Machine.needs("systemd-socket-activate"))))
    struct SystemService {
        private let machine: PolicyMachine
        /// What the service says in the system's log.
        private let journal: DatagramSocket
        private let ann = PolicyMachine.ann
        private let ben = PolicyMachine.ben
        private var base: String { machine.fixture.base }

        init() throws {
            machine = try PolicyMachine()
            try machine.fixture.directory("run")
            journal = try DatagramSocket(at: try machine.fixture.directory("journal") + "/socket")
        }

        private static let policy = "[[revoke]]\nwho = [\"@staff2\"]\nviews = [\"ci\", \"team-*\"]\n"
        /// The place of the socket, as all users here see it.
        private var script: String { "mount -t tmpfs tmpfs /run; mkdir /run/grantfs; mount --bind '\(base)/run' /run/grantfs" }

        /// As systemd starts it: one process of root's for each connection.
        private func serve() throws -> Child {
            let service = try Child([
                "unshare", "-m", "sh", "-euc",
                """
                mount --bind "$1/etc" /etc; \(script)
                mkdir -p /run/systemd/journal; mount --bind "$1/journal" /run/systemd/journal
                exec systemd-socket-activate -a --inetd -l /run/grantfs/system.sock "$2" serve --store "$1/store"
                """, "sh", base, Programs.grantfs,
            ])
            let socket = base + "/run/system.sock"
            try machine.fixture.wait(until: "the service listens") { access(socket, F_OK) == 0 && Self.listens(service.pid) }
            chmod(socket, 0o666)
            return service
        }

        /// Whether a process has a UNIX socket that listens. Its file is there a moment sooner, and refuses connections until then.
        private static func listens(_ pid: pid_t) -> Bool {
            let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd")) ?? []
            let open = entries.compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/fd/\($0)") }
            // Num RefCount Protocol Flags Type St Inode Path. The flag is __SO_ACCEPTCON
            // (net/unix/af_unix.c, unix_seq_show).
            return Processes.kernelText("/proc/net/unix").split(separator: "\n").contains { line in
                let fields = line.split(separator: " ")
                return fields.count > 6 && fields[3] == "00010000" && open.contains("socket:[\(fields[6])]")
            }
        }

        private func asUser(_ words: [String], _ identity: Identity) throws -> Output {
            // Without a store of its own that is named: the service has root's.
            let who = ["setpriv", "--reuid=\(identity.uid)", "--regid=\(identity.gid)", "--init-groups", "--"]
            return try Command.run(
                ["unshare", "-m", "sh", "-euc", "mount --bind \"$1/etc\" /etc; \(script); shift; exec \"$@\"", "sh", base] + who
                    + [Programs.grantfs(for: ann)] + words)
        }

        @Test(
            "A member revokes grants only in the views that the policy names"
        )
        func revoking() throws {
            try machine.write(Self.policy)
            let fixture = machine.fixture
            for (name, view) in [("a", "ci"), ("b", "team-x"), ("c", "private")] {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source, view: view)
            }
            let mountpoint = try fixture.mount("ci")
            let held = open(mountpoint + "/a/file", O_RDONLY)
            defer { close(held) }
            var byte: UInt8 = 0
            #expect(pread(held, &byte, 1, 0) == 1)
            let service = try serve()
            defer { service.kill() }
            #expect(try asUser(["list", "--system", "--json"], ann).orThrow().decoded(as: [RecordedGrant].self).map(\.name) == ["a", "b"])
            for (words, identity) in [
                (["revoke", "--system", "c"], ann), (["revoke", "--system", "--view", "private", "c"], ann),
                (["revoke", "--system", "a"], ben), (["list", "--system"], ben),
            ] {
                #expect(try asUser(words, identity).status == 1, "\(words) \(identity)")
            }
            #expect(
                try asUser(["revoke", "--system", "a"], ben).errors.contains("no [[revoke]] of the administrator's policy names “ben”"))
            #expect(try fixture.list().count == 3)
            let revoked = try asUser(["revoke", "--system", "a"], ann).orThrow()
            #expect(revoked.text.hasPrefix("revoked a ("), "\(revoked)")
            // Live: a held descriptor is refused.
            #expect(pread(held, &byte, 1, 0) == -1 && errno == EACCES)
            let denied = try #require(journal.next())
            let done = try #require((0..<3).compactMap { _ in journal.next() }.last)
            #expect(denied.contains("GRANTFS_EVENT=refused\n") && denied.contains("GRANTFS_UID=61002\n"), "\(denied)")
            #expect(done.contains("GRANTFS_EVENT=revoked\n") && done.contains("GRANTFS_UID=61001\n"), "\(done)")
            let entry = try #require(try fixture.log().last { $0.event == "revoked" })
            #expect(entry.uid == ann.uid && entry.name == "a" && entry.program == "grantfs")
            // Without a rule, and with one that makes no sense.
            try machine.write("")
            #expect(try asUser(["revoke", "--system", "b"], ann).status == 1)
            try machine.write("revoke = 1")
            #expect(try asUser(["revoke", "--system", "b"], ann).errors.contains("10-site.toml:1"))
            #expect(try fixture.list("--all").filter { $0.state == "active" }.count == 2)
        }

        @Test("A member restores in root's store what that member alone has revoked")
        func restoring() throws {
            try machine.write(Self.policy)
            let fixture = machine.fixture
            for name in ["a", "b"] { try fixture.grant(try fixture.source(name), view: "ci") }
            let service = try serve()
            defer { service.kill() }
            try asUser(["revoke", "--system", "a"], ann).orThrow()
            try asUser(["restore", "--system", "a"], ann).orThrow()
            #expect(try fixture.list().map(\.name) == ["a", "b"])
            // Root withdraws it as well: it stays so.
            try asUser(["revoke", "--system", "a"], ann).orThrow()
            try fixture.grantfs("revoke", "a").orThrow()
            try fixture.grantfs("revoke", "b").orThrow()
            for name in ["a", "b"] {
                let output = try asUser(["restore", "--system", name], ann)
                #expect(output.status == 1 && output.errors.contains("another user has revoked"), "\(output)")
            }
            #expect(try fixture.list().isEmpty)
        }

        @Test("Malformed and silent connections do not block the system service")
        func nonsense() throws {
            try machine.write(Self.policy)
            try machine.fixture.grant(try machine.fixture.source("a"), view: "ci")
            let path = base + "/run/system.sock"
            do {
                let service = try serve()
                defer { service.kill() }
                // Too short, too long, and twice empty. The last one stays.
                let silent = try [[0, 0, 0, 4, 1, 2, 3, 4], [0x7F, 0x7F, 0x7F, 0x7F], [], []].map {
                    try StreamSocket(to: path, sending: $0)
                }
                #expect(try asUser(["list", "--system"], ann).orThrow().text.contains("a ("))
                #expect(silent.count == 4)
            }
            unlink(path)
            // ben listens there and could send any answer.
            chmod(base + "/run", 0o777)
            let words = ["systemd-socket-activate", "-a", "--inetd", "-l", path, "cat"]
            let other = try Child(["setpriv", "--reuid=61002", "--regid=61002", "--clear-groups", "--"] + words)
            defer { other.kill() }
            try machine.fixture.wait(until: "another listens") { access(path, F_OK) == 0 && Self.listens(other.pid) }
            chmod(path, 0o666)
            let refused = try asUser(["list", "--system"], ann)
            #expect(refused.status == 1 && refused.errors.contains("cannot be reached: Operation not permitted"), "\(refused)")
        }

        /// A connection that says these bytes and is kept.
        private final class StreamSocket {
            private let descriptor: Int32

            init(to path: String, sending bytes: [UInt8]) throws {
                descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
                var address = sockaddr_un()
                address.sun_family = sa_family_t(AF_UNIX)
                withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
                let connected = withUnsafePointer(to: &address) { pointer in
                    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                    }
                }
                guard connected == 0 else { throw TestFailure("connect \(path): \(String(cString: strerror(errno)))") }
                if !bytes.isEmpty { _ = send(descriptor, bytes, bytes.count, 0) }
            }

            deinit { close(descriptor) }
        }

        private struct RecordedGrant: Decodable { let name: String }
    }
}
