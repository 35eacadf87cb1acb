import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The shown times of files are the stored ones.
    @Suite struct Times {
        /// Changes files in a directory in each way, within a tick of the kernel's clock, and prints the mtime of each at its close. Each
        /// is made, written and closed, and then changed again.
        private static let changing = """
            import mmap, os, sys
            place = sys.argv[1]
            page = mmap.mmap(-1, 4096)
            page.write(b'd' * 4096)
            def opened(path, flags=0): return os.open(path, os.O_RDWR | flags, 0o666)
            def write(path):
                fd = opened(path); os.pwrite(fd, b'y' * 5000, 100); os.close(fd)
            def append(path):
                fd = opened(path, os.O_APPEND); os.write(fd, b'y'); os.close(fd)
            def store(path):
                fd = opened(path)
                memory = mmap.mmap(fd, 4096)
                os.close(fd)
                memory[0:4] = b'more'
                memory.close()
            def allocate(path):
                fd = opened(path); os.posix_fallocate(fd, 0, 20000); os.close(fd)
            def copy(path):
                fd, other = opened(path), opened(path + '.from', os.O_CREAT)
                os.write(other, b'z' * 3000)
                os.copy_file_range(other, fd, 3000, 0, 0)
                os.close(fd); os.close(other)
            def direct(path):
                fd = opened(path, os.O_DIRECT); os.pwrite(fd, page, 0); os.close(fd)
            def empty(path):
                os.close(opened(path, os.O_TRUNC)); os.close(opened(path, os.O_TRUNC))
            def shorten(path): os.truncate(path, 10); os.truncate(path, 10)
            def sync(path):
                fd = opened(path); os.write(fd, b's'); os.fsync(fd); os.write(fd, b't'); os.close(fd)
            def touch(path):
                write(path); os.utime(path, ns=(0, 0)); append(path)
            for way in (write, append, store, allocate, copy, direct, empty, shorten, sync, touch):
                for number in range(20):
                    path = f'{place}/{way.__name__}-{number}'
                    fd = opened(path, os.O_CREAT); os.write(fd, b'x' * 5000); os.close(fd)
                    way(path)
            """

        private static let listing = """
            import os, sys
            for name in sorted(os.listdir(sys.argv[1])): print(name, os.stat(sys.argv[1] + '/' + name).st_mtime_ns)
            """

        /// By way of a shell: the first program of that name may be one that only root may run.
        private func python(_ script: String, _ arguments: String..., as user: Identity = .current) throws -> String {
            try Command.run(["sh", "-c", "exec python3 -I -c \"$@\"", "sh", script] + arguments, as: user).orThrow().text
        }

        private func times(in place: String) throws -> [String] {
            try python(Self.listing, place).split(separator: "\n").map { String($0) }
        }

        @Test(
            "The modification time of a closed file is stored and stays",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)), arguments: ["exclusive", "shared", "none"], [false, true])
        func modification(cache: String, byUser: Bool) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            chmod(source, 0o777)
            try fixture.grant(source)
            let options = "allow_other,cache=\(cache)"
            let mount = try fixture.mount(options: options) + "/a"
            let user = byUser ? try #require(Machine.plainUser) : .current
            _ = try python(Self.changing, mount, as: user)
            // A close does not wait for the end of a mapping.
            let shown = try times(in: mount)
            #expect(shown.count == 220)
            #expect(Set(try times(in: source)).symmetricDifference(shown).isEmpty, "stored, not shown")
            try Command.shell("sync").orThrow()
            try KernelCaches.drop()
            #expect(Set(try times(in: mount)).symmetricDifference(shown).isEmpty, "after the kernel has forgotten them")
            try fixture.grantfs("unmount", fixture.base + "/mount").orThrow()
            try fixture.mount(options: options)
            #expect(Set(try times(in: mount)).symmetricDifference(shown).isEmpty, "after a remount")
            fixture.finish()
        }

        @Test("A modification time is not written back after a revocation or narrowing", arguments: ["revoke", "set"])
        func withdrawn(how: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=exclusive") + "/a"
            let script = """
                import os, sys
                files = [os.open(sys.argv[1] + f'/{i}', os.O_RDWR | os.O_CREAT) for i in range(20)]
                for file in files: os.write(file, b'x' * 5000)
                print('open', flush=True)
                sys.stdin.readline()
                for file in files: os.close(file)
                print('closed', flush=True)
                """
            let holder = try Child(["python3", "-I", "-c", script, mount])
            try holder.expect("open")
            try fixture.grantfs([how, "a"] + (how == "set" ? ["--access", "read-only"] : [])).orThrow()
            let before = try times(in: source)
            holder.send("go on")
            try holder.expect("closed")
            #expect(try times(in: source) == before)
            fixture.finish()
        }

        // MARK: access

        /// Reads in each way, after the times of last access were set to a day long ago. Prints which have changed.
        private static let reading = """
            import mmap, os, subprocess, sys
            through, behind = sys.argv[1:]
            names = ('read', 'mapped', 'run', 'copied', 'sent', 'directory')
            for name in names:
                path = behind + '/' + name
                os.utime(path, ns=(10 ** 18, os.stat(path).st_mtime_ns))
            def opened(name): return os.open(through + '/' + name, os.O_RDONLY)
            os.read(opened('read'), 10)
            mmap.mmap(opened('mapped'), 4096, prot=mmap.PROT_READ)[0]
            subprocess.run([through + '/run'], check=True)
            target = os.open(through + '/target', os.O_RDWR | os.O_CREAT)
            os.copy_file_range(opened('copied'), target, 100)
            os.sendfile(target, opened('sent'), 0, 100)
            os.listdir(through + '/directory')
            print(*[name for name in names if os.stat(behind + '/' + name).st_atime_ns != 10 ** 18])
            """

        private func prepared(owner: Identity = .current) throws -> (fixture: MountFixture, source: String, native: String) {
            let fixture = try MountFixture(owner: owner)
            let source = try fixture.source("a")
            let script = """
                cd "$1"; for name in read mapped copied sent; do seq 3000 > $name; done; mkdir directory; touch directory/file
                cp /bin/true run; chmod 755 run directory
                """
            try Command.shell(script, source, as: owner).orThrow()
            let native = try python(Self.reading, source, source, as: owner)
            return (fixture, source, native)
        }

        /// Without a cache each way to read reaches the daemon. With a cache the first does.
        @Test(
            "`noatime` keeps access times and `nodiratime` those of directories",
            arguments: ["shared", "exclusive", "none"], ["", "noatime", "nodiratime"])
        func access(cache: String, option: String) throws {
            let (fixture, source, native) = try prepared()
            let mountpoint = try fixture.mount(options: "cache=\(cache)" + (option.isEmpty ? "" : "," + option), isNew: true)
            try fixture.grant(source)
            let changed = try python(Self.reading, mountpoint + "/a", source)
            let files = native.split(whereSeparator: \.isWhitespace).filter { $0 != "directory" }.joined(separator: " ") + "\n"
            #expect(changed == ["": native, "noatime": "\n", "nodiratime": files][option])
            fixture.finish()
        }

        @Test(
            "`noatime` keeps access times in a user's mount",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func accessOfUsers() throws {
            let (fixture, source, _) = try prepared(owner: try #require(Machine.plainUser))
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "noatime")
            #expect(try python(Self.reading, mountpoint + "/a", source, as: fixture.owner) == "\n")
            fixture.finish()
        }

        @Test(
            "`noatime` keeps access times of other users' files",
            .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root and a plain user"),
            arguments: ["shared", "exclusive", "none"])
        func accessOfOthers(cache: String) throws {
            let (fixture, source, _) = try prepared()
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "allow_other,noatime,cache=\(cache)")
            try Command.shell("touch -a -d @1000000000 \"$1/read\" \"$1/directory\"", source).orThrow()
            let user = try #require(Machine.plainUser)
            try Command.shell("cat \"$1/read\" > /dev/null; ls \"$1/directory\"", mountpoint + "/a", as: user).orThrow()
            let times = try Command.shell("stat -c %X \"$1/read\" \"$1/directory\"", source).orThrow().lines
            #expect(times == ["1000000000", "1000000000"])
            fixture.finish()
        }

        @Test(
            "A remount with or without `noatime` takes effect in the daemon",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func accessAfterRemount() throws {
            let (fixture, source, native) = try prepared()
            try fixture.grant(source)
            let mountpoint = try fixture.mount(options: "cache=none")
            let changed = { try python(Self.reading, mountpoint + "/a", source) }
            #expect(try changed() == native)
            for (option, wanted) in [("noatime", "\n"), ("atime", native)] {
                try fixture.grantfs("mount", "default", mountpoint, "-o", "remount,\(option)").orThrow()
                try fixture.wait(until: "the daemon knows of \(option)") { try changed() == wanted }
            }
            fixture.finish()
        }
    }
}
