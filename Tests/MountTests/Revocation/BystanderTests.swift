import TestSupport
import Testing

extension MountTests {
    /// What a withdrawal in the midst of writes does to others.
    @Suite struct Bystanders {
        /// Writes, stores and renames below the second argument, again and again. After an error it
        /// starts again. Prints the errors of close(2) when its input ends.
        private static let writing = """
            import mmap, os, random, sys, threading, time
            def storing(memory):
                while True:
                    for store in range(50): memory[random.randrange(len(memory))] = 1
                    time.sleep(0.001)
            def turn(kind, path):
                file = os.open(path, os.O_RDWR | os.O_CREAT)
                try:
                    os.truncate(file, 1 << 20)
                    if kind == 'map':
                        memory = mmap.mmap(file, 1 << 20)
                        child = os.fork()
                        if child == 0:
                            try: storing(memory)
                            finally: os._exit(1)
                        children.append(child)
                        os.waitpid(child, 0)
                        children.remove(child)
                        memory.close()
                    while kind == 'write':
                        for piece in range(20): os.pwrite(file, b'x' * 5000, random.randrange(1 << 20))
                        time.sleep(0.001)
                    while kind == 'name':
                        time.sleep(0.001)
                        os.pwrite(file, b'x', 0)
                        os.rename(path, path + 'r')
                        os.rename(path + 'r', path)
                finally:
                    try: os.close(file)
                    except OSError as error: errors.add(f'close: {os.strerror(error.errno)}')
            def turns(kind, path):
                while True:
                    try: turn(kind, path)
                    except OSError: time.sleep(0.002)
            errors, children = set(), []
            for kind in sys.argv[2:]:
                for number in range(2): threading.Thread(target=turns, args=(kind, f'{sys.argv[1]}/{kind}{number}'), daemon=True).start()
            print('writing', flush=True)
            sys.stdin.read()
            for child in children: os.kill(child, 9)
            print(*errors or ['none'], flush=True)
            os._exit(0)
            """

        /// Requests write-back of everything, again and again. Prints the failures when its input
        /// ends.
        private static let syncing = """
            import ctypes, os, select, sys
            library, errors = ctypes.CDLL(None, use_errno=True), set()
            place = os.open(sys.argv[1], os.O_RDONLY)
            file = os.open(sys.argv[1] + '/own', os.O_RDWR | os.O_CREAT)
            print('syncing', flush=True)
            while not select.select([sys.stdin], [], [], 0.002)[0]:
                os.pwrite(file, b'x' * 10, 0)
                if library.syncfs(place): errors.add(f'syncfs: {os.strerror(ctypes.get_errno())}')
                os.fsync(file)
            os.close(file)
            print(*errors or ['none'], flush=True)
            """

        @Test(
            "A withdrawal during writes fails no syncfs, fsync or close in another grant",
            arguments: ["shared", "exclusive"], ["revoke", "narrow"])
        func syncing(cache: String, how: String) throws {
            let fixture = try MountFixture()
            for name in ["mine", "others"] { try fixture.grant(try fixture.source(name)) }
            let mount = try fixture.mount(options: "cache=\(cache)")
            let writers = try Child(["python3", "-I", "-c", Self.writing, mount + "/mine", "write", "map", "name"])
            try writers.expect("writing")
            let bystander = try Child(["python3", "-I", "-c", Self.syncing, mount + "/others"])
            try bystander.expect("syncing")
            for _ in 0..<12 {
                if how == "revoke" {
                    try fixture.revoke("mine")
                    try fixture.restore("mine")
                } else {
                    try fixture.grantfs("set", "mine", "--access", "read-only").orThrow()
                    try fixture.grantfs("set", "mine", "--access", "read-write").orThrow()
                }
                pause(milliseconds: 40)
            }
            bystander.closeInput()
            try bystander.expect("none", within: 60)
            // A withdrawal makes no close fail. A narrowing may, of a file of which something was acknowledged that never reached it.
            writers.closeInput()
            let closing = try #require(writers.line(within: 60))
            #expect(closing == "none" || (how == "narrow" && closing == "close: Read-only file system"))
        }
    }
}
