import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Sources that are less the daemon's than its callers'.
    @Suite(.enabled(if: Identity.isRoot && Machine.plainUser != nil, Comment(rawValue: Machine.needsRoot)))
    struct SquashingSourceTests {
        /// For a directory of its own, made by its owner. Arguments: the directory, the caller.
        /// Prints the result of each call, and the files afterwards.
        private static let attempts = """
            import errno, fcntl, os, sys
            directory, who = sys.argv[1], sys.argv[2]
            uid, gid, groups = {'root': (0, 0, []), 'owner': (1001, 1001, []), 'member': (1002, 1002, [2001]), 'stranger': (1003, 1003, [])}[who]
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.umask(0o022)
            os.chdir(directory)
            def attempt(what, call):
                try: print(who, what, call())
                except OSError as error: print(who, what, errno.errorcode[error.errno])
            def use(path, how, act, mode=0o666):
                fd = os.open(path, how, mode)
                try: return act(fd)
                finally: os.close(fd)
            def make(name): use(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, lambda fd: os.write(fd, b'made'))
            def lock(fd): fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for place in 'open', 'home', 'shared':
                attempt(place + ' listed', lambda: sorted(os.listdir(place)))
                attempt(place + ' read', lambda: use(place + '/file', os.O_RDONLY, lambda fd: os.read(fd, 100)))
                attempt(place + ' written', lambda: use(place + '/file', os.O_RDWR, lambda fd: os.write(fd, b'more')))
                attempt(place + ' appended', lambda: use(place + '/file', os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, who.encode())))
                attempt(place + ' locked', lambda: use(place + '/file', os.O_RDWR, lock))
                attempt(place + ' made', lambda: make(place + '/made'))
                attempt(place + ' directory', lambda: os.mkdir(place + '/sub'))
                attempt(place + ' link', lambda: os.symlink('text', place + '/link'))
                attempt(place + ' text', lambda: os.readlink(place + '/link'))
                attempt(place + ' hard link', lambda: os.link(place + '/made', place + '/hard'))
                attempt(place + ' mode', lambda: os.chmod(place + '/made', 0o640))
                attempt(place + ' mode of the file', lambda: os.chmod(place + '/file', 0o664))
                attempt(place + ' times', lambda: os.utime(place + '/made', (1, 1)))
                attempt(place + ' cut', lambda: os.truncate(place + '/made', 1))
                attempt(place + ' renamed', lambda: os.rename(place + '/made', place + '/other'))
                attempt(place + ' stat', lambda: [(os.stat(place + '/other').st_uid, os.stat(place + '/other').st_gid, oct(os.stat(place + '/other').st_mode))])
                attempt(place + ' removed', lambda: [os.unlink(place + '/other'), os.unlink(place + '/hard'), os.unlink(place + '/link'), os.rmdir(place + '/sub')])
            """

        /// Files for all users, for the owner alone, and for a supplementary group.
        private static let prepare = """
            cd "$1"; mkdir open home shared; for d in open home shared; do echo text > $d/file; done; chown -R 1001:1001 home; chown -R 1001:2001 shared
            chmod 777 open; chmod 666 open/file; chmod 700 home; chmod 600 home/file; chmod 770 shared; chmod 660 shared/file
            """

        @Test(
            "A root-squashing source gives each user its native access",
            arguments: ["shared", "exclusive", "none"])
        func asBeside(cache: String) throws {
            let fixture = try MountFixture()
            let source = try HangingSource("server", in: fixture, squashes: true)
            defer { source.end() }
            for name in ["native", "granted"] {
                let directory = source.behind + "/" + name
                try Command.shell("mkdir -m 755 \"$1\"", directory).orThrow()
                try Command.shell(Self.prepare, directory).orThrow()
            }
            try fixture.grant(source.directory + "/granted")
            let mount = try fixture.mount(options: "allow_other,cache=\(cache)") + "/granted"
            for who in ["owner", "member", "stranger", "root", "owner"] {
                let seen = try [source.directory + "/native", mount].map {
                    try Command.run(["python3", "-c", Self.attempts, $0, who]).orThrow().lines
                }
                #expect(seen[0].count == 51)
                for (native, here) in zip(seen[0], seen[1]) where native != here { Issue.record("beside it “\(native)”, here “\(here)”") }
            }
            let look = "cd \"$1\"; find . -printf '%P %y %m %U %G %s\\n' | LC_ALL=C sort"
            #expect(try Command.shell(look, source.behind + "/native").text == Command.shell(look, source.behind + "/granted").text)
        }

        @Test("A root-squashing source lends no groups of earlier callers")
        func groupsOfOthers() throws {
            let fixture = try MountFixture()
            let source = try HangingSource("server", in: fixture, squashes: true)
            defer { source.end() }
            try Command.shell("mkdir -m 777 \"$1/granted\"; echo text >\"$1/granted/file\"; chmod 666 \"$1/granted/file\"", source.behind)
                .orThrow()
            try fixture.grant(source.directory + "/granted")
            let local = try fixture.source("local")
            let files = 60
            // Without execution for the group: members keep the bit as they write, others do not.
            try Command.shell(
                "chmod 755 \"$1\"; cd \"$1\"; for k in $(seq 0 $2); do echo x >$k; chgrp 2001 $k; chmod 2646 $k; done", local, "\(files)"
            ).orThrow()
            try fixture.grant(local)
            let mount = try fixture.mount(options: "allow_other")
            let script = """
                import os, sys
                mount, files = sys.argv[1], int(sys.argv[2])
                def be(uid, groups):
                    os.seteuid(0); os.setgroups(groups); os.setegid(uid); os.seteuid(uid)
                for k in range(files):
                    be(1002, [2001])
                    # Every reader has served the member.
                    for _ in range(20): os.close(os.open(mount + '/granted/file', os.O_RDWR))
                    be(1003, [])
                    with open(mount + '/local/%d' % k, 'r+') as file: file.write('y')
                """
            try Command.run(["python3", "-c", script, mount, "\(files)"]).orThrow()
            let kept = try Command.run(["find", local, "-perm", "-2000"]).orThrow().lines
            #expect(kept == ["\(local)/\(files)"], "the one that nobody wrote to")
        }

        @Test(
            "A source that only its owner may enter is refused to root",
            .enabled(if: Machine.usersCanMount && Command.exists("bindfs"), Comment(rawValue: Machine.usersCannotMount)))
        func anothersOnly() throws {
            let user = Machine.plainUser!
            let fixture = try MountFixture(owner: user)
            let behind = try fixture.directory("outside/behind")
            let source = try fixture.source("theirs")
            try Command.shell("echo text > \"$1/file\"", behind, as: user).orThrow()
            let server = try Child(["bindfs", "-f", "--no-allow-other", behind, source], identity: user)
            defer { server.kill() }
            try fixture.wait(until: "bindfs is mounted") { fixture.mountpoints.contains(source) }
            // Here the kernel checks all IDs of a process (fs/fuse/dir.c,
            // fuse_allow_current_process), so an fsuid does not help.
            let refused = try fixture.grantfs(["--store", fixture.base + "/root-store", "grant", source], as: .current)
            #expect(refused.status == 1 && refused.errors.contains("Permission denied"), "\(refused)")
            try fixture.grant(source)
            let mount = try fixture.mount() + "/theirs"
            #expect(
                try Command.shell("cat \"$1/file\"; echo more >> \"$1/file\"; cat \"$2/file\"", mount, behind, as: user).text
                    == "text\ntext\nmore\n")
            try fixture.revoke("theirs")
            #expect(try Command.run(["cat", mount + "/file"], as: user).errors.contains("Permission denied"))
        }
    }
}
