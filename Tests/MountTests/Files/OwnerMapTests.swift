import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// `-o map`: files have other owners in the mount than on the host, as in an idmapped mount of the same directory.
    @Suite(.enabled(if: Identity.isRoot && Machine.mapsOwners, "needs root, python3 and a filesystem that maps owners"))
    struct OwnerMaps {
        private static let map = "map=0:100000:1000"

        /// Makes an idmapped mount of the first argument on the second one (mount_setattr(2)).
        private static let bind = """
            import ctypes, os, sys
            libc = ctypes.CDLL(None, use_errno=True)
            def check(result):
                if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                return result
            entered, told = os.pipe()
            child = os.fork()
            if child == 0:
                check(libc.unshare(0x10000000)); os.write(told, b'x'); libc.pause()
            os.read(entered, 1)
            for map in 'uid_map', 'gid_map':
                with open(f'/proc/{child}/{map}', 'w') as file: file.write('0 100000 1000')
            namespace = os.open(f'/proc/{child}/ns/user', os.O_RDONLY)
            tree = check(libc.syscall(428, -100, sys.argv[1].encode(), 0x80001))
            check(libc.syscall(442, tree, b'', 0x1000, ctypes.byref((ctypes.c_uint64 * 4)(0x100000, 0, 0, namespace)), 32))
            check(libc.syscall(429, tree, b'', -100, sys.argv[2].encode(), 4))
            os.kill(child, 9)
            """

        /// Files and directories of owners that the map has, or has not.
        private static let prepare = """
            import os
            for owner in (0, 33, 999, 5000):
                for group in (0, 8, 5000):
                    for kind in 'file', 'private', 'directory', 'sticky', 'closed':
                        name = f'{kind}-{owner}-{group}'
                        if kind in ('file', 'private'): os.close(os.open(name, os.O_CREAT))
                        else: os.mkdir(name)
                        if kind == 'sticky': os.close(os.open(name + '/kept', os.O_CREAT)); os.chown(name + '/kept', 33, 33)
                        if kind == 'closed': os.close(os.open(name + '/inside', os.O_CREAT)); os.chown(name + '/inside', owner, group)
                        os.chown(name, owner, group)
                        os.chmod(name, {'file': 0o664, 'private': 0o600, 'directory': 0o2775, 'sticky': 0o1777, 'closed': 0o750}[kind])
            os.chmod('.', 0o777)
            """

        /// Prints the result of each change, and the file's owners and mode then.
        private static let act = """
            import struct
            os.umask(0o22)
            def show(name):
                status = os.lstat(name)
                return f'{status.st_uid}:{status.st_gid} {status.st_mode:o}'
            def acl(*entries): return struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
            def attempt(name, what, change):
                try: result = change()
                except OSError as error: result = error.strerror
                try: print(name, what, result, show(name))
                except OSError as error: print(name, what, result, error.strerror)
            def contents(name, flags):
                fd = os.open(name, flags)
                try: return os.read(fd, 9) if flags == os.O_RDONLY else os.write(fd, b'text')
                finally: os.close(fd)
            name_of_acl = 'system.posix_acl_access'
            for name in sorted(os.listdir('.')):
                print(name, show(name), os.access(name, os.R_OK), os.access(name, os.W_OK))
                changes = {
                    'chown': lambda: os.chown(name, 34, 9), 'unmapped': lambda: os.chown(name, 1000, -1), 'chgrp': lambda: os.chown(name, -1, 8),
                    'back': lambda: os.chown(name, 33, -1), 'mode': lambda: os.chmod(name, 0o6775), 'plain': lambda: os.chmod(name, 0o775),
                    'acl': lambda: os.setxattr(name, name_of_acl, acl((1, 6, -1), (2, 7, 77), (4, 4, -1), (8, 6, 78), (16, 7, -1), (32, 4, -1))),
                    'get': lambda: os.getxattr(name, name_of_acl), 'attribute': lambda: os.setxattr(name, 'user.x', b'y'),
                    'times': lambda: os.utime(name, (1, 1)), 'now': lambda: os.utime(name), 'link': lambda: os.link(name, name + '-linked'),
                    'rename': lambda: (os.rename(name, name + '-moved'), os.rename(name + '-moved', name)),
                }
                attempt(name, 'inside', lambda: contents(name + '/inside', os.O_RDONLY))
                if os.path.isdir(name):
                    changes |= {
                        'make': lambda: os.close(os.open(name + '/new', os.O_CREAT | os.O_WRONLY, 0o666)) or show(name + '/new'),
                        'mkdir': lambda: os.mkdir(name + '/sub') or show(name + '/sub'),
                        'symlink': lambda: os.symlink('x', name + '/link') or show(name + '/link'),
                        'kept': lambda: os.unlink(name + '/kept'), 'list': lambda: sorted(os.listdir(name)),
                    }
                else:
                    changes = {
                        'read': lambda: contents(name, os.O_RDONLY), 'write': lambda: contents(name, os.O_WRONLY),
                    } | changes | {'truncate': lambda: os.truncate(name, 2), 'unlink': lambda: os.unlink(name)}
                for what, change in changes.items(): attempt(name, what, change)
            """

        private func python(_ script: String, in directory: String, _ arguments: String...) throws -> Output {
            try Command.run(
                ["sh", "-c", "cd \"$1\" && shift && exec python3 \"$@\"", "sh", directory, "-c", script] + arguments
            ).orThrow()
        }

        @Test(
            "Programs of a user namespace see and change the files of an idmapped mount",
            arguments: [0, 33, 77], ["shared", "exclusive", "none"])
        func asNatively(user: Int, cache: String) throws {
            let fixture = try MountFixture()
            let (source, behind, native) = (try fixture.source("a"), try fixture.directory("behind"), try fixture.directory("native"))
            for place in [source, behind] { _ = try python(Self.prepare, in: place) }
            try fixture.mountOther(["python3", "-c", Self.bind, behind], at: native)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other,\(Self.map),cache=\(cache)") + "/a"
            let script = "user = \(user)\n" + SetIDBits.enterNamespace + Self.act
            let (expected, seen) = (try python(script, in: native).lines, try python(script, in: mount).lines)
            for (seen, expected) in zip(seen, expected) { #expect(seen == expected) }
            #expect(seen.count == expected.count && seen.count > 300)
            let look = "find . -printf '%p %U:%G %m %y\\n' | sort; getfacl -Rnp . 2>/dev/null"
            let (left, there) = (
                try Command.shell("cd \"$1\"; " + look, behind).lines, try Command.shell("cd \"$1\"; " + look, source).lines
            )
            for (left, there) in zip(left, there) { #expect(left == there) }
            #expect(left.count == there.count && left.contains { $0.contains("/new \(user):") })
        }

        @Test("No process has the rights of an owner without a number", arguments: ["shared", "exclusive", "none"])
        func unmapped(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            let prepare = """
                cd "$1"; mkdir -m 750 byowner bygroup; for d in byowner bygroup; do echo text > $d/f; chmod 666 $d/f; mkdir -m 777 $d/pub; done
                chown 5000:33 byowner; chown 33:5000 bygroup; echo text > listed; chown 33:33 listed; chmod 640 listed; setfacl -m u:5000:r,g:34:r listed
                """
            try Command.shell(prepare, source).orThrow()
            try fixture.grant(source)
            let place = try fixture.mount(options: "allow_other,\(Self.map),cache=\(cache)") + "/a"
            func run(_ script: String, _ user: String, _ groups: String = "") throws -> Output {
                let groups = groups.isEmpty ? ["--clear-groups"] : ["--groups", groups]
                return try Command.run(
                    ["setpriv", "--reuid", user, "--regid", user] + groups + ["sh", "-c", "cd \"$1\"; " + script, "sh", place])
            }
            // The kernel knows the names then.
            #expect(try run("cat byowner/f bygroup/f; ls byowner/pub bygroup/pub", "100033").text.hasPrefix("text\ntext\n"))
            let attempts = "for d in byowner bygroup; do cat $d/f; ls $d/pub; echo x > $d/f; echo x > $d/pub/new; done 2>/dev/null; true"
            for (user, groups) in [("65534", ""), ("1234", "65534"), ("0", "")] {
                #expect(try run(attempts, user, groups).text == "", "\(user) \(groups)")
            }
            #expect(try Command.shell("cat \"$1\"/*/f; ls \"$1\"/*/pub", source).text.contains("text\ntext\n"))
            #expect(access(source + "/byowner/pub/new", F_OK) != 0 && access(source + "/bygroup/pub/new", F_OK) != 0)
            // An entry of a user without a number does not spoil an ACL.
            #expect(try run("cat listed", "100050", "100034").text == "text\n")
            #expect(try run("cat listed; true", "100050").text == "")
            #expect(try run("getfacl -cn listed", "100033").orThrow().text.contains("group:100034:r--"))
        }

        @Test("A mount that is covered or has no place keeps its limits after its daemon", arguments: ["upgrade", "death"], [true, false])
        func covered(_ way: String, isMapped: Bool) throws {
            let fixture = try MountFixture()
            let (behind, source) = (try fixture.directory("behind"), try fixture.source("a"))
            try Command.shell("mkdir -p \"$1/x/part/deep\"; echo text > \"$1/x/part/deep/file\"", behind).orThrow()
            try fixture.mountOther(["mount", "--bind", behind + "/x"], at: source)
            try fixture.grant(source)
            let mount = try fixture.mount(options: isMapped ? Self.map + ",recover" : "recover")
            let held = open(mount + "/a/part", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            defer { close(held) }
            #expect(held >= 0)
            #expect(try Command.run(["umount", source]).errors.contains("busy"))
            if isMapped {
                try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: source)
            } else {
                try Command.run(["umount", "-l", source]).orThrow()
            }
            let before = try fixture.daemon(at: mount)
            if way == "upgrade" {
                _ = try fixture.grantfs("upgrade", mount)
            } else {
                kill(before, SIGKILL)
                try fixture.wait(until: "another daemon serves the mount") { try fixture.daemon(at: mount) != before }
            }
            rename(behind + "/x/part", behind + "/escaped")
            try fixture.wait(until: "the directory is refused") {
                let file = openat(held, "deep/file", O_RDONLY | O_CLOEXEC)
                if file >= 0 { close(file) }
                return file < 0
            }
        }

        @Test("A map may have the machine's root, and none the number that stands for others")
        func numbers() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            chown(source, 0, 8)
            try fixture.grant(source)
            let mount = try fixture.mount(options: "map=0:0:1000")
            #expect(try Command.run(["stat", "-c", "%u:%g", mount + "/a"]).orThrow().text == "0:8\n")
            let refused = try fixture.grantfs("mount", "default", try fixture.directory("other"), "-o", "map=0:65000:1000")
            #expect(refused.status != 0 && refused.errors.contains("65534 stands for"), "\(refused)")
        }

        /// A filesystem of its own below the machine's, so that paths have a part before it.
        private struct Place {
            let fixture: MountFixture
            let volume: String
            var source: String { volume + "/deep/source" }

            init() throws {
                fixture = try MountFixture()
                volume = try fixture.directory("volume")
                let image = fixture.base + "/image"
                try Command.run(["truncate", "-s", "32M", image]).orThrow()
                try Command.run(["mkfs.ext4", "-q", "-F", image]).orThrow()
                try fixture.mountOther(["mount", "-o", "loop", image], at: volume)
                try FileManager.default.createDirectory(atPath: source + "/sub", withIntermediateDirectories: true)
                try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/sub/file"))
                chown(source + "/sub/file", 33, 33)
                try fixture.grant(source, name: "a")
            }
        }

        @Test(
            "A directory keeps its owners, its path and its limits, with each daemon",
            .enabled(if: Command.exists("mkfs.ext4"), "needs mkfs.ext4"),
            arguments: ["none", "upgrade", "death"])
        func succession(_ way: String) throws {
            let place = try Place()
            let fixture = place.fixture
            let mount = try fixture.mount(options: "allow_other,recover,\(Self.map),map-groups=0:200000:1000")
            let held = open(mount + "/a/sub/file", O_RDONLY | O_CLOEXEC)
            defer { close(held) }
            let before = try fixture.daemon(at: mount)
            switch way {
            case "upgrade": try fixture.grantfs("upgrade", mount).orThrow()
            case "death":
                kill(before, SIGKILL)
                try fixture.wait(until: "another daemon serves the mount") { try fixture.daemon(at: mount) != before }
            default: break
            }
            func owner(_ path: String) throws -> String { try Command.run(["stat", "-c", "%u:%g", mount + "/a/" + path]).orThrow().text }
            #expect(try owner("sub/file") == "100033:200033\n")
            var byte: UInt8 = 0
            #expect(pread(held, &byte, 1, 0) == 1)
            // A program of the container.
            try Command.run([
                "setpriv", "--reuid", "100033", "--regid", "200033", "--clear-groups", "sh", "-c", "echo x > '\(mount)/a/sub/file'",
            ])
            .orThrow()
            let path = try Command.run(
                ["getfattr", "--only-values", "-n", "user.document-portal.host-path", mount + "/a/sub/file"])
            #expect(path.status != 0 || path.text == place.source + "/sub/file", "\(path)")
            // The host renames the directory, and then moves a part of it away.
            rename(place.source, place.volume + "/renamed")
            try fixture.wait(until: "the new path is known") {
                try fixture.grantfs("list").orThrow().text.contains(place.volume + "/renamed")
            }
            #expect(try owner("sub/file") == "100033:200033\n")
            rename(place.volume + "/renamed/sub", place.volume + "/away")
            try fixture.wait(until: "the file is refused") { pread(held, &byte, 1, 0) < 0 && errno == EACCES }
            #expect(access(mount + "/a/sub/file", F_OK) != 0)
            // A grant that is added later.
            mkdir(place.volume + "/second", 0o755)
            chown(place.volume + "/second", 33, 34)
            try fixture.grant(place.volume + "/second", name: "b")
            #expect(try Command.run(["stat", "-c", "%u:%g", mount + "/b"]).orThrow().text == "100033:200034\n")
            // Nothing holds the filesystem then.
            for name in ["a", "b"] { try fixture.grantfs("revoke", name).orThrow() }
            close(open("/dev/null", O_RDONLY))
            try fixture.wait(until: "the filesystem is free") { try Command.run(["umount", place.volume]).status == 0 }
        }

        @Test("A revocation refuses everything")
        func revoked() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data("text".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mount = try fixture.mount(options: Self.map)
            let holder = try Child([Programs.attacker, "outlive", mount + "/a/file", "map", "fd", "cwd"])
            try holder.expect("ready")
            try fixture.grantfs("revoke", "a").orThrow()
            let said = try Succession.said(holder)
            #expect(!said.contains("OK") && said.contains("fd EACCES"), "\(said)")
            holder.kill()
        }

        @Test(
            "A grant whose files cannot have other owners is not shown",
            .enabled(if: Command.exists("bindfs"), Comment(rawValue: Machine.needs("bindfs"))))
        func refused() throws {
            let fixture = try MountFixture()
            let (source, file) = (try fixture.source("a"), fixture.base + "/single")
            try fixture.mountOther(["bindfs", try fixture.directory("behind")], at: source)
            try Data("text".utf8).write(to: URL(fileURLWithPath: file))
            for path in [source, file, try fixture.source("good")] { try fixture.grant(path) }
            let mount = try fixture.mount(options: Self.map)
            #expect(try FileManager.default.contentsOfDirectory(atPath: mount) == ["good"])
            let states = try fixture.grantfs("status").orThrow().lines.filter { $0.contains(" unavailable ") }
            #expect(states.count == 2, "\(states)")
        }

        @Test("A user's mount maps no owners", .enabled(if: Machine.plainUser != nil, "there is no plain user"))
        func ofUser() throws {
            let own = try MountFixture(owner: try #require(Machine.plainUser))
            let output = try own.grantfs("mount", "default", try own.directory("place"), "--new", "-o", Self.map)
            #expect(output.status != 0 && output.errors.contains("for root of the machine"), "\(output)")
        }
    }

    /// Before Linux 6.2 a map is refused.
    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct OwnerMapKernels {
        @Test("A kernel that tells the host's numbers of an ACL maps no owners")
        func kernels() throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let output = try fixture.grantfs("mount", "default", try fixture.directory("mount"), "-o", "map=0:100000:1000")
            #expect(output.status == 0 ? Machine.mapsOwners : output.errors.contains("Linux 6.2 or later is needed"), "\(output)")
        }
    }
}
