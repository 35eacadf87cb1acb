import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Changes of the host to an open file, seen by every call that reads.
    @Suite(.enabled(if: Command.exists("python3"), "needs python3"))
    struct OpenFileTests {
        /// Arguments: the host's directory, the same in the mount, the cache mode, the number from which the changes are drawn.
        private static let script = """
            import mmap, os, random, socket, sys, time
            host, mount, cache, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
            draw = random.Random(seed)

            def sendfile(fd, at):
                one, other = socket.socketpair()
                with one, other:
                    count = os.sendfile(one.fileno(), fd, at, 60000)
                    return other.recv(99999) if count else b''
            def splice(fd, at):
                reading, writing = os.pipe()
                try:
                    count = os.splice(fd, writing, 60000, offset_src=at)
                    return os.read(reading, count) if count else b''
                finally:
                    os.close(reading)
                    os.close(writing)
            def copy(fd, at):
                target = os.open(os.path.dirname(os.readlink(f'/proc/self/fd/{fd}')), os.O_RDWR | os.O_TMPFILE)
                try:
                    count = os.copy_file_range(fd, target, 60000, at, 0)
                    return os.pread(target, 99999, 0) if count else b''
                finally:
                    os.close(target)
            def mapped(fd, at):
                size = os.fstat(fd).st_size
                if size <= at: return b''
                with mmap.mmap(fd, size, prot=mmap.PROT_READ) as map: return map[at:]
            calls = {
                'pread': lambda fd, at: os.pread(fd, 99999, at), 'sendfile': sendfile, 'splice': splice, 'copy': copy, 'mmap': mapped,
                'preadv': lambda fd, at: (lambda b: b[:os.preadv(fd, [b], at)])(bytearray(99999)),
                'fstat': lambda fd, at: os.fstat(fd).st_size, 'end': lambda fd, at: os.lseek(fd, 0, os.SEEK_END)}

            def grow(path):
                with open(path, 'ab') as file: file.write(b'G' * draw.choice([1, 2, 4095, 4096, 4097, 9000]))
            def rewrite(path):
                file = os.open(path, os.O_WRONLY)
                os.pwrite(file, b'R' * 5000, draw.choice([0, 1, 4096]))
                os.close(file)
            def cut(path): os.truncate(path, draw.choice([0, 1, 100, 4096]))
            def cut_and_write(path):
                with open(path, 'wb') as file: file.write(b'W' * draw.choice([1, 4096, 6000, 20000]))
            def replace(path):
                with open(path + '.new', 'wb') as file: file.write(b'N' * 777)
                os.rename(path + '.new', path)
            changes = [grow, grow, rewrite, replace, os.unlink, lambda path: os.rename(path, path + '.away')]
            # A file in use keeps its size there when it becomes shorter.
            if cache != 'exclusive': changes += [cut, cut_and_write]

            def differing(files):
                wrong = []
                for what, call, at, native, seen in files:
                    there = calls[call](native, at)
                    # In separate processes nobody else asks for sizes meanwhile; here the order of the calls is drawn.
                    here = calls[call](seen, at)
                    if bytes(there) != bytes(here) if isinstance(there, (bytes, bytearray)) else there != here:
                        show = lambda x: x if isinstance(x, int) else (len(x), bytes(x[:4]))
                        wrong.append(f'{what}, {call} at {at}: natively {show(there)}, in the mount {show(here)}')
                return wrong

            files = []
            for number, call in enumerate(list(calls) * 3):
                change, size = draw.choice(changes), draw.choice([0, 1, 4000, 4096, 5000, 8192])
                path = f'{host}/{number}'
                with open(path, 'wb') as file: file.write(b'o' * size)
                native, seen = os.open(path, os.O_RDONLY), os.open(f'{mount}/{number}', os.O_RDONLY)
                os.pread(seen, 99999, 0)
                calls[call](seen, 0)
                what = getattr(change, '__name__', str(change)) + f' {size}'
                files.append((what, call, draw.choice([0, 1, size]), native, seen, change, path))
            # The file system's clock has to go on, so that a time of modification tells of the change.
            time.sleep(0.03)
            for file in files: file[5](file[6])
            until = time.monotonic() + 20
            asked = [file[:5] for file in files]
            while True:
                # Each file is asked by its own call alone.
                wrong = differing(asked)
                if not wrong: break
                if time.monotonic() > until: sys.exit('\\n'.join(wrong))
                time.sleep(0.05)
            """

        static let owners = [Identity.current] + (Identity.isRoot && Machine.usersCanMount ? [Machine.plainUser!] : [])

        @Test(
            "An open file that the host changes is read natively by every call",
            arguments: ["shared", "exclusive", "none"], owners)
        func asNatively(cache: String, owner: Identity) throws {
            let fixture = try MountFixture(owner: owner)
            let source = try fixture.source("work")
            try fixture.grantfs("grant", source, "--name", "work").orThrow()
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            for seed in 1...4 {
                let words = ["python3", "-c", Self.script, source, mountpoint + "/work", cache, "\(seed)"]
                let output = try Command.run(words, as: owner)
                #expect(output.status == 0, "\(cache), seed \(seed): \(output.text)\(output.errors)")
                try Command.run(["sh", "-c", "rm -f \"$1\"/*", "sh", source], as: owner).orThrow()
            }
        }
    }
}
