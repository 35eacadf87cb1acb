import Foundation
import TestSupport
import Testing

/// An opener beside the mount waits for the mount's daemon, but only briefly, and then sees all
/// data.
extension MountTests.Oplocks {
    /// Opens the file on the host and prints a line.
    private func opener(of place: LockedFile) throws -> Child {
        try Child(["python3", "-I", "-c", "import sys; open(sys.argv[1], 'rb'); print('opened', flush=True)", place.file])
    }

    @Test("Counters in mappings lose no increment between mounts and the host", arguments: ["lockf", "flock"])
    func counters(lock: String) throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try Command.shell("cd \"$1\"; for f in 0 1 2; do head -c 8192 /dev/zero > $f; done", source).orThrow()
        for name in ["a", "b"] { try fixture.grant(source, name: name) }
        let (first, second) = try (fixture.mount(), fixture.mount(at: "second"))
        // Opened and closed constantly, so that a file has a single opener again and again.
        let script = """
            import fcntl, mmap, os, random, struct, sys, time
            lock, counts, end = getattr(fcntl, sys.argv[1]), [0, 0, 0], time.monotonic() + 3
            while time.monotonic() < end:
                number = random.randrange(3)
                file = os.open(f'{sys.argv[2]}/{number}', os.O_RDWR)
                memory = mmap.mmap(file, 0)
                for turn in range(random.choice((1, 1, 5, 30))):
                    lock(file, fcntl.LOCK_EX)
                    struct.pack_into('<q', memory, 5000, struct.unpack_from('<q', memory, 5000)[0] + 1)
                    lock(file, fcntl.LOCK_UN)
                    counts[number] += 1
                memory.close()
                os.close(file)
            print(*counts, flush=True)
            """
        let counting = try [first + "/a", first + "/a", first + "/b", second + "/a", source].map {
            try Child(["python3", "-I", "-c", script, lock, $0])
        }
        var sums = [0, 0, 0]
        for child in counting {
            let counts = try #require(child.line(within: 60)).split(separator: " ").compactMap { Int($0) }
            for (number, count) in counts.enumerated() { sums[number] += count }
        }
        let reading =
            "import struct, sys; print(*[struct.unpack_from('<q', open(f'{sys.argv[1]}/{n}', 'rb').read(), 5000)[0] for n in range(3)])"
        let found = try Command.run(["python3", "-I", "-c", reading, source]).orThrow().trimmed
        #expect(found == sums.map(String.init).joined(separator: " "))
    }

    @Test("An open on the host waits for a frozen filesystem only for a limited time")
    func frozen() throws {
        let fixture = try MountFixture()
        let volume = try Volume(.ext4, at: "volume", in: fixture)
        let place = try LockedFile(fixture, below: try fixture.directory("volume/a"))
        let holder = try place.open()
        #expect(try !place.isFetchedEachTime(by: holder))
        try holder.does("lock", "store:then", "unlock")
        try Command.run(["fsfreeze", "--freeze", volume.place]).orThrow()
        let opener: Child
        do {
            defer { _ = try? Command.run(["fsfreeze", "--unfreeze", volume.place]) }
            opener = try self.opener(of: place)
            #expect(opener.line(within: 0.5) == nil, "it waits")
            #expect(opener.line(within: 30) == "opened")
            // Later openers do not wait.
            try self.opener(of: place).expect("opened", within: 30)
        }
        try fixture.wait(until: "it is written down after all") { try place.onDisk() == "then" }
        try place.close(holder)
    }

    @Test("An open on the host waits for slow write-back of all stored data")
    func slow() throws {
        let fixture = try MountFixture()
        let volume = try Volume(.ext4, at: "volume", in: fixture)
        let place = try LockedFile(fixture, below: try fixture.directory("volume/a"))
        let storing = """
            import fcntl, mmap, sys
            file = open(sys.argv[1], 'r+b')
            file.truncate(3000 * 4096)
            memory = mmap.mmap(file.fileno(), 0)
            for turn in range(3):
                fcntl.lockf(file, fcntl.LOCK_EX)
                for page in range(0, len(memory), 4096): memory[page] = turn
                fcntl.lockf(file, fcntl.LOCK_UN)
            print('stored', flush=True)
            sys.stdin.read()
            """
        let holder = try Child(["python3", "-I", "-c", storing, place.mount + "/file"])
        try holder.expect("stored", within: 60)
        // FIFREEZE and FITHAW: the filesystem takes writes for a moment at a time, until some have come, and says for how long it took none.
        let pulses = """
            import fcntl, os, sys, time
            place, longest = os.open(sys.argv[1], os.O_RDONLY), 0
            def blocks(): return os.stat(sys.argv[2]).st_blocks
            for pulse in range(9):
                before, start = blocks(), time.monotonic()
                fcntl.ioctl(place, 0xC0045877, 0)
                if pulse == 0: print('slow', flush=True)
                time.sleep(0.4)
                fcntl.ioctl(place, 0xC0045878, 0)
                # Nothing comes before the file is opened, nor when all has come.
                while 0 < before < 24000 and blocks() == before and time.monotonic() < start + 5: time.sleep(0.001)
                time.sleep(0.003)
                longest = max(longest, time.monotonic() - start)
            print(longest, flush=True)
            """
        let volumeThatIsSlow = try Child(["python3", "-I", "-c", pulses, volume.place, place.file])
        try volumeThatIsSlow.expect("slow")
        let opener = "import sys; print(sum(1 for page in open(sys.argv[1], 'rb').read()[::4096] if page == 2))"
        let found = try Command.run(["python3", "-I", "-c", opener, place.file], within: 60).orThrow().trimmed
        let longest = try #require(volumeThatIsSlow.line(within: 60).flatMap { Double($0) })
        // An opener waits two seconds for the next write. On a machine that was suspended for as
        // long, none has come.
        if longest < 1.5 { #expect(found == "3000") }
        holder.kill()
    }

    @Test("An open on the host waits for a stopped daemon until it continues or dies", arguments: [SIGCONT, SIGKILL])
    func stopped(signal: Int32) throws {
        let place = try LockedFile()
        let holder = try place.open()
        #expect(try !place.isFetchedEachTime(by: holder))
        try holder.does("lock", "store:then", "unlock")
        let daemon = try place.fixture.daemon(at: place.fixture.base + "/mount")
        kill(daemon, SIGSTOP)
        let opener = try opener(of: place)
        #expect(opener.line(within: 0.3) == nil, "it waits")
        kill(daemon, signal)
        try opener.expect("opened", within: 15)
        if signal == SIGCONT { #expect(try place.onDisk() == "then") }
    }

    @Test("A nonblocking open on the host never fails because of a lock")
    func neverFails() throws {
        let place = try LockedFile()
        let opening = """
            import os, sys, time
            turn, end = 0, time.monotonic() + 20
            while turn < 4000 and (turn < 100 or time.monotonic() < end):
                os.close(os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK))
                turn += 1
            print('never failed', flush=True)
            """
        // Locked so often that each opening checks for other openers.
        let locking = """
            import fcntl, os, sys
            while True:
                file = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
                for turn in range(9):
                    fcntl.lockf(file, fcntl.LOCK_SH)
                    fcntl.lockf(file, fcntl.LOCK_UN)
                os.close(file)
            """
        let locker = try Child(["python3", "-I", "-c", locking, place.mount + "/file"])
        let openers = try (0..<2).map { _ in try Child(["python3", "-I", "-c", opening, place.file]) }
        for opener in openers { try opener.expect("never failed", within: 60) }
        #expect(locker.wait(within: 0) == nil, "it has not failed either")
        locker.kill()
    }

    @Test("A daemon without free descriptors does not block an open on the host")
    func noDescriptors() throws {
        let place = try LockedFile(limit: 256)
        let holder = try place.open()
        #expect(try !place.isFetchedEachTime(by: holder))
        try holder.does("lock", "store:then", "unlock")
        let script = """
            import errno, os, sys
            try:
                while True: os.open(sys.argv[1], os.O_RDONLY)
            except OSError as error: print(errno.errorcode[error.errno], flush=True)
            sys.stdin.read()
            """
        let glutton = try Child(["python3", "-I", "-c", script, place.mount + "/file"])
        try glutton.expect("ENFILE")
        // The kernel makes the daemon a descriptor for each opening, and denies the opening when there is no room for it.
        #expect(try place.onDisk() == "then")
        glutton.kill()
    }

    @Test("A daemon keeps no descriptors after repeated opens on the host")
    func nothingIsLeft() throws {
        let place = try LockedFile()
        let daemon = try place.fixture.daemon(at: place.fixture.base + "/mount")
        let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task")
        let watcher = try #require(
            threads.first {
                Processes.kernelText("/proc/\(daemon)/task/\($0)/comm").contains("grantfs-openers")
            })
        func descriptors() throws -> [Int] {
            try [watcher, "\(daemon)"].map { try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/task/\($0)/fd").count }
        }
        func once() throws {
            let holder = try place.open()
            #expect(try !place.isFetchedEachTime(by: holder))
            #expect(try place.onDisk() == "mine")
            try place.close(holder)
        }
        try once()
        let before = try descriptors()
        for _ in 0..<5 { try once() }
        // The watching thread notices it a moment later.
        try place.fixture.wait(until: "all of them are closed") { zip(try descriptors(), before).allSatisfy { $0 <= $1 } }
        // A new opener does not involve the daemon, so the daemon can be stopped.
        kill(daemon, SIGSTOP)
        defer { kill(daemon, SIGCONT) }
        #expect(try opener(of: place).line() == "opened")
    }
}
