import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Set-id bits that a caller could not set on a file of its own.
    @Suite(.enabled(if: Identity.isRoot && Machine.plainUser != nil && Command.exists("python3"), "needs root, a plain user and python3"))
    struct SetIDGains {
        /// Another user than the mount's.
        private static let other = PolicyMachine.ben

        /// Creates files in the working directory with every call that takes a mode.
        private static let create = """
            import os
            os.umask(0)
            os.close(os.open('created', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o6777))
            os.mknod('made', 0o106777)
            os.mkdir('directory', 0o6777)
            file = os.open('.', os.O_RDWR | os.O_TMPFILE, 0o6777)
            # With a directory's descriptor Python takes linkat(2), which follows the link.
            os.link(f'/proc/self/fd/{file}', 'named', dst_dir_fd=os.open('.', os.O_RDONLY))
            """

        /// Runs commands in a namespace that lets users mount for others, regardless of this
        /// machine's /etc/fuse.conf.
        private final class Namespace {
            private let holder: Child

            init(_ fixture: MountFixture) throws {
                let configuration = fixture.base + "/fuse.conf"
                try Data("user_allow_other\n".utf8).write(to: URL(fileURLWithPath: configuration))
                chmod(configuration, 0o644)
                holder = try Child([
                    "unshare", "--mount", "--propagation", "private", "sh", "-c",
                    "mount --bind \"$1\" /etc/fuse.conf && echo ready && read end", "sh", configuration,
                ])
                try holder.expect("ready")
            }

            func run(_ command: [String], as identity: Identity, _ environment: [String: String] = [:]) throws -> Output {
                let user = ["setpriv", "--reuid=\(identity.uid)", "--regid=\(identity.gid)", "--clear-groups", "--"]
                return try Command.run(["nsenter", "--mount", "-t", "\(holder.pid)", "--"] + user + command, environment: environment)
            }
        }

        private func mode(_ path: String) throws -> (bits: mode_t, owner: uid_t) {
            var status = stat()
            try #require(lstat(path, &status) == 0, "\(path)")
            return (status.st_mode & 0o7777, status.st_uid)
        }

        @Test(
            "A file that another user creates in a user's mount has no set-id bits",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)),
            arguments: ["shared", "exclusive", "none"])
        func ofTheMountsOwner(cache: String) throws {
            let owner = try #require(Machine.plainUser)
            let fixture = try MountFixture(owner: owner)
            let namespace = try Namespace(fixture)
            let source = try fixture.source("a")
            chmod(source, 0o777)
            try fixture.grant(source)
            let mountpoint = try fixture.directory("mount")
            let grantfs = [Programs.grantfs(for: owner)]
            let options = "allow_other,cache=\(cache)"
            try namespace.run(grantfs + ["mount", "default", mountpoint, "-o", options], as: owner, fixture.environment).orThrow()
            let enter = ["sh", "-c", "cd \"$1\" && exec python3 -c \"$2\"", "sh", mountpoint + "/a"]
            try namespace.run(enter + [Self.create], as: Self.other).orThrow()
            for name in ["created", "made", "directory", "named"] {
                let found = try mode(source + "/" + name)
                #expect(found.bits == 0o777 && found.owner == owner.uid, "\(name): \(String(found.bits, radix: 8))")
            }
            let own = "import os; os.umask(0); os.close(os.open('own', os.O_CREAT | os.O_RDWR, 0o6755))"
            try namespace.run(enter + [own], as: owner).orThrow()
            #expect(try mode(source + "/own").bits == 0o6755)
            try namespace.run(grantfs + ["unmount", mountpoint], as: owner, fixture.environment).orThrow()
        }

        @Test("A file that was given away on the host gets no set-id bits from its former owner", arguments: [false, true])
        func givenAway(fromNamespace: Bool) throws {
            let user = try #require(Machine.plainUser)
            // Root of a user namespace may change files of all its users.
            let owner = fromNamespace ? 100033 : user.uid
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            chmod(source, 0o777)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other") + "/a"
            let file = source + "/file"
            try Data().write(to: URL(fileURLWithPath: file))
            let setter = """
                import os, sys, time
                print('ready', flush=True)
                while True:
                    try: os.chmod(sys.argv[1], 0o4755)
                    except OSError: pass
                    time.sleep(0.0003)
                """
            let enter = fromNamespace ? "user = 0\n" + SetIDBits.enterNamespace : ""
            let former = try Child(["python3", "-c", enter + setter, mount + "/file"], identity: fromNamespace ? .current : user)
            try former.expect("ready")
            for _ in 0..<12 {
                chown(file, owner, owner)
                try fixture.wait(until: "the owner sets the bit") { try mode(file).bits == 0o4755 }
                chown(file, 0, 0)
                for _ in 0..<20 {
                    let found = try mode(file)
                    if found.bits & 0o6000 != 0 {
                        Issue.record("a set-id file of user \(found.owner): \(String(found.bits, radix: 8))")
                        return
                    }
                    usleep(500)
                }
            }
        }
    }
}
