import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// `cache=exclusive`, under which the kernel opens files without a request.
    @Suite(.enabled(if: Command.exists("python3"), Comment(rawValue: Machine.needs("python3"))))
    struct KernelOpensTests {
        private func mounted(
            _ options: String = "", _ user: Identity = .current, prepare: (MountFixture, String) throws -> Void = { _, _ in }
        ) throws -> (fixture: MountFixture, source: String, mount: String) {
            let fixture = try MountFixture(owner: user)
            let source = try fixture.source("a")
            try prepare(fixture, source)
            if try fixture.list("--all").isEmpty { try fixture.grant(source) }
            return (fixture, source, try fixture.mount(options: "cache=exclusive" + options) + "/a")
        }

        /// Files and directories that the daemon has open for reading or writing below a directory.
        private func kept(_ fixture: MountFixture, below source: String) throws -> Int {
            let place = "/proc/\(try fixture.daemon(at: fixture.base + "/mount"))/fd"
            return try FileManager.default.contentsOfDirectory(atPath: place).filter { number in
                let leads = (try? FileManager.default.destinationOfSymbolicLink(atPath: "\(place)/\(number)"))?.hasPrefix(source + "/")
                let line = Processes.kernelText(place + "info/\(number)").split(separator: "\n").first { $0.hasPrefix("flags:") }
                let flags = line.flatMap { Int($0.dropFirst(6).trimmingCharacters(in: .whitespaces), radix: 8) } ?? 0
                // O_PATH
                return leads == true && flags & 0o10000000 == 0
            }.count
        }

        private func run(_ script: String, _ arguments: String..., as user: Identity = .current) throws -> [String] {
            try Command.run(["env", "PATH=/usr/bin:/bin", "python3", "-I", "-c", script] + arguments, as: user, within: 120).orThrow().lines
        }

        @Test("Under `cache=exclusive` the kernel sends opens that audit or claims need")
        func asked() throws {
            let read = "import sys\nfor i in range(20): open(sys.argv[1]).read()"
            func openings(_ place: (fixture: MountFixture, source: String, mount: String)) throws -> Int {
                try Data("x".utf8).write(to: URL(fileURLWithPath: place.source + "/file"))
                _ = try run(read, place.mount + "/file")
                return try place.fixture.requests()["OPEN", default: 0]
            }
            #expect(try openings(mounted()) <= 1)
            #expect(try openings(mounted(",audit")) >= 20)
            let mandatory = try mounted { fixture, source in
                try fixture.grant(source)
                try fixture.grantfs("set", "a", "--coordination", "mandatory").orThrow()
            }
            #expect(try openings(mandatory) >= 20)
            if Machine.kernel >= (6, 9) { #expect(try openings(mounted(",recover")) >= 20) }
            if Command.exists("bindfs") {
                let served = try mounted { fixture, source in
                    try fixture.mountOther(["bindfs", try fixture.directory("behind")], at: source)
                }
                #expect(try openings(served) >= 20)
            }
        }

        @Test(
            "A removed or replaced file stays readable while it is open")
        func removed() throws {
            let (fixture, source, mount) = try mounted()
            let script = """
                import os, sys
                place = sys.argv[1]
                def opened(name, flags=os.O_RDWR | os.O_CREAT):
                    file = os.open(place + '/' + name, flags, 0o600)
                    os.pwrite(file, name.encode() * 3000, 0)
                    return file
                names = [kind + str(number) for kind in ('removed', 'over', 'linked', 'tmp') for number in range(8)]
                files = {}
                for name in names:
                    if name.startswith('tmp'):
                        files[name] = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o600)
                        os.pwrite(files[name], name.encode() * 3000, 0)
                    else: files[name] = opened(name)
                    if name.startswith('linked'): os.link(place + '/' + name, place + '/second' + name)
                for name in names:
                    if name.startswith('over'):
                        open(place + '/new', 'w').write('new')
                        os.rename(place + '/new', place + '/' + name)
                    elif not name.startswith('tmp'): os.unlink(place + '/' + name)
                    if name.startswith('linked'): os.unlink(place + '/second' + name)
                print('held', flush=True)
                input()
                for name, file in files.items():
                    os.fsync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    assert os.pread(file, 1 << 20, 0) == name.encode() * 3000, name
                    os.pwrite(file, b'more', 5)
                    os.fsync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    assert os.pread(file, 4, 5) == b'more', name
                    assert os.fstat(file).st_nlink == 0, name
                print('done', flush=True)
                """
            let holder = try Child(["python3", "-I", "-c", script, mount])
            try holder.expect("held", within: 60)
            try fixture.wait(until: "nothing is kept that nobody uses") { try kept(fixture, below: source) == 0 }
            holder.send("go")
            try holder.expect("done", within: 60)
            let look = "import sys\nfor i in range(8): print(open(sys.argv[1] + f'/over{i}').read())"
            #expect(try run(look, mount) == Array(repeating: "new", count: 8))
        }

        @Test("The daemon keeps no descriptor of an unused file")
        func closed() throws {
            let (fixture, source, mount) = try mounted()
            let script = """
                import os, sys
                for number in range(3000):
                    with open(f'{sys.argv[1]}/{number}', 'w') as file: file.write('x' * 5000)
                os.listdir(sys.argv[1])
                fd = os.open(sys.argv[1], os.O_RDONLY)
                for number in range(3000):
                    with open(f'{sys.argv[1]}/{number}') as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                        assert file.read() == 'x' * 5000
                """
            _ = try run(script, mount)
            try fixture.wait(until: "all is closed") { try kept(fixture, below: source) == 0 }
            let look = "import os, sys\nprint(sum(os.stat(e).st_size for e in os.scandir(sys.argv[1])))"
            #expect(try run(look, mount) == ["15000000"])
        }

        @Test("An open file is written after its mode no longer permits it")
        func unwritable() throws {
            guard Machine.usersCanMount, let user = Machine.plainUser else { return }
            let (fixture, source, mount) = try mounted("", user)
            let script = """
                import os, sys, time
                place = sys.argv[1]
                made = os.open(place + '/made', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)
                changed = os.open(place + '/changed', os.O_RDWR | os.O_CREAT, 0o600)
                os.fchmod(changed, 0)
                os.write(made, b'first ')
                os.fsync(made)
                time.sleep(2.5)
                for file in made, changed: os.write(file, b'last'); os.close(file)
                try: os.open(place + '/made', os.O_RDWR)
                except PermissionError: print('refused')
                """
            #expect(try run(script, mount, as: user) == ["refused"])
            #expect(try String(contentsOfFile: source + "/made", encoding: .utf8) == "first last")
            #expect(try Command.run(["cat", source + "/changed"]).text.hasPrefix("last") || !Identity.isRoot)
            fixture.finish()
        }

        @Test("The first write below a read-only grant fails with EROFS and loses no data")
        func readOnly() throws {
            let (fixture, source, mount) = try mounted()
            let script = """
                import errno, mmap, os, sys
                place = sys.argv[1]
                files = [os.open(f'{place}/{n}', os.O_RDWR | os.O_CREAT) for n in range(20)]
                for f in files: os.write(f, b'before')
                print('written', flush=True)
                input()
                files += [os.open(f'{place}/{n}', os.O_RDWR) for n in range(20)]
                def refused(call, *arguments):
                    try: call(*arguments)
                    except OSError as error: return errno.errorcode[error.errno]
                    return 'done'
                said = {refused(os.write, f, b'after!') for f in files}
                said |= {refused(os.ftruncate, files[0], 1), refused(os.truncate, place + '/1', 1)}
                for name, flag in ('2', os.O_TRUNC), ('new', os.O_CREAT): said.add(refused(os.open, place + '/' + name, os.O_WRONLY | flag))
                mapped = mmap.mmap(files[-1], 6)
                mapped[0:6] = b'mapped'
                said.add(refused(mapped.flush))
                print(*said, flush=True)
                print(all(os.pread(f, 9, 0) == b'before' for f in files[:19]), flush=True)
                """
            let writer = try Child(["python3", "-I", "-c", script, mount])
            try writer.expect("written", within: 60)
            try fixture.grantfs("set", "a", "--access", "read-only").orThrow()
            for number in 0..<20 { #expect(try String(contentsOfFile: "\(source)/\(number)", encoding: .utf8) == "before") }
            writer.send("go")
            try writer.expect("EROFS", within: 60)
            try writer.expect("True", within: 60)
            #expect(try String(contentsOfFile: source + "/19", encoding: .utf8) == "before")
            try fixture.grantfs("set", "a", "--access", "read-write").orThrow()
            let append = "import sys\nopen(sys.argv[1] + '/3', 'a').write(' and after')\nprint(open(sys.argv[1] + '/3').read())"
            #expect(try run(append, mount) == ["before and after"])
        }

        @Test(
            "A revocation keeps every byte whose write had returned")
        func acknowledged() throws {
            let (fixture, source, mount) = try mounted()
            let script = """
                import os, sys, threading
                place, ready = sys.argv[1], threading.Barrier(5)
                counts = [0] * 4
                def write(number):
                    files = [os.open(f'{place}/{number}-{n}', os.O_RDWR | os.O_CREAT) for n in range(50)]
                    ready.wait()
                    try:
                        while True:
                            os.write(files[counts[number] % 50], b'%08d' % counts[number])
                            counts[number] += 1
                    except OSError: pass
                threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
                for thread in threads: thread.start()
                ready.wait()
                print('writing', flush=True)
                for thread in threads: thread.join()
                print(*counts, flush=True)
                """
            for _ in 0..<4 {
                let writer = try Child(["python3", "-I", "-c", script, mount])
                try writer.expect("writing", within: 60)
                pause(milliseconds: 100)
                #expect(try fixture.revoke("a").allSatisfy(\.isConfirmed))
                let counts = try #require(writer.line(within: 60)).split(separator: " ").compactMap { Int($0) }
                for (number, count) in counts.enumerated() {
                    #expect(count > 0)
                    for file in 0..<50 {
                        let expected = stride(from: file, to: count, by: 50).map { String(format: "%08d", $0) }.joined()
                        let seen = try String(contentsOfFile: "\(source)/\(number)-\(file)", encoding: .utf8)
                        #expect(seen == expected, "\(number)-\(file): \(seen.utf8.count) of \(expected.utf8.count)")
                        try FileManager.default.removeItem(atPath: "\(source)/\(number)-\(file)")
                    }
                }
                try fixture.restore("a")
            }
        }

        @Test("A directory is listed with its present entries after another listing ended")
        func listedLater() throws {
            let (fixture, source, mount) = try mounted { _, source in
                mkdir(source + "/d", 0o755)
                for number in 0..<5 { try Data().write(to: URL(fileURLWithPath: source + "/d/f\(number)")) }
            }
            let listing = try Child([
                "python3", "-I", "-c",
                """
                import os, sys
                names = os.scandir(sys.argv[1])
                for number in range(5): next(names)
                print('begun', flush=True); sys.stdin.readline()
                print(len(list(names)))
                """, mount + "/d",
            ])
            try listing.expect("begun")
            try fixture.wait(until: "the directory is kept open no more") { try kept(fixture, below: source) == 0 }
            listing.send("go on")
            try listing.expect("0")
            try Data().write(to: URL(fileURLWithPath: mount + "/d/new"))
            #expect(try FileManager.default.contentsOfDirectory(atPath: mount + "/d").count == 6)
        }

        @Test("An open descriptor of the root lists grants that came and went")
        func root() throws {
            let (fixture, _, mount) = try mounted()
            let root = (mount as NSString).deletingLastPathComponent
            let script = """
                import os, sys
                fd = os.open(sys.argv[1], os.O_RDONLY)
                while True:
                    for _ in range(3): os.listdir(fd)
                    print(*sorted(os.listdir(fd)), flush=True)
                    input()
                """
            let lister = try Child(["python3", "-I", "-c", script, root])
            try lister.expect("a", within: 60)
            try fixture.grant(try fixture.source("b"))
            lister.send("go")
            try lister.expect("a b", within: 60)
            _ = try fixture.revoke("a")
            lister.send("go")
            try lister.expect("b", within: 60)
            lister.kill()
        }
    }
}
