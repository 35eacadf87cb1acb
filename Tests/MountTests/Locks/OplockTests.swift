import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Files locked in a mount while no other process has them open. Their locks are cheap, and a
    /// later opener sees the same data as without that.
    @Suite(
        .enabled(
            if: Identity.isRoot && Command.exists("python3"), Comment(rawValue: "\(Machine.needsRoot), \(Machine.needs("python3"))")))
    struct Oplocks {
        /// The opener of the file after it was locked in the mount.
        enum Opener: String, CaseIterable, Sendable {
            case host, anotherName, byHeldPath, anotherMount, anotherGrant
        }

        @Test(
            "Another opener of a locked file finds all data stored in mappings", arguments: Opener.allCases)
        func stores(opener: Opener) throws {
            let place = try LockedFile()
            var path = place.file
            switch opener {
            case .host, .byHeldPath: break
            case .anotherName:
                path = place.source + "/name"
                try FileManager.default.linkItem(atPath: place.file, toPath: path)
            case .anotherMount: path = try place.fixture.mount(at: "second") + "/a/file"
            case .anotherGrant:
                try place.fixture.grant(place.source, name: "again")
                path = place.fixture.base + "/mount/again/file"
            }
            /// The contents that a new opener finds.
            func found() throws -> String {
                let held = "f'/proc/self/fd/{os.open(sys.argv[1], os.O_PATH)}'"
                let script = """
                    import os, sys
                    with open(\(opener == .byHeldPath ? held : "sys.argv[1]"), 'rb') as file: print(os.pread(file.fileno(), 4, 5000).decode())
                    """
                return try Command.run(["python3", "-I", "-c", script, path]).orThrow().trimmed
            }
            for isLocked in [false, true] {
                let holder = try place.open()
                #expect(try !place.isFetchedEachTime(by: holder), "nobody else has it open, so nothing is dropped or written down")
                try holder.does("lock", "store:held")
                if !isLocked { try holder.does("store:free", "unlock") }
                #expect(try found() == (isLocked ? "held" : "free"))
                // From now on it is written down when the lock ends.
                try holder.does(isLocked ? "store:then" : "lock", "store:then", "unlock")
                #expect(try place.onDisk() == "then")
                #expect(try place.isFetchedEachTime(by: holder), "somebody else has opened it")
                try place.close(holder)
            }
        }

        @Test("A lock in the mount shows data stored in a mapping on the host")
        func hostStores() throws {
            let place = try LockedFile()
            let holder = try place.open()
            #expect(holder.sees == "....")
            // A store into a mapping sends no event.
            let before = try place.open(onHost: true)
            try before.does("store:from", "close")
            try holder.does("lock")
            #expect(holder.sees == "from")
            try holder.does("unlock")
            #expect(try !place.isFetchedEachTime(by: holder))
            let after = try place.open(onHost: true)
            for word in ["once", "more"] {
                try after.does("lock", "store:\(word)", "unlock")
                try holder.does("lock")
                #expect(holder.sees == word)
                try holder.does("store:mine", "unlock")
                #expect(after.sees == "mine")
            }
            try after.does("close")
        }

        @Test("A file open on the host at the first lock is fetched again with each lock")
        func openBefore() throws {
            let place = try LockedFile()
            let known = place.keptKnown()
            defer { Glibc.close(known) }
            let host = try place.open(onHost: true)
            let holder = try place.open()
            #expect(try place.isFetchedEachTime(by: holder))
            #expect(host.sees == "mine")
            try host.does("close")
            #expect(try place.isFetchedEachTime(by: holder), "it cannot be looked at anew while it is open twice")
            try place.close(holder)
            // It was locked before, so its opening inspects it. The second opener finds it
            // inspected.
            let (first, second) = try (place.open(), place.open())
            #expect(try !place.isFetchedEachTime(by: first))
            #expect(try !place.isFetchedEachTime(by: second))
            #expect(first.sees == "mine")
            try first.does("close")
            #expect(try !place.isFetchedEachTime(by: second))
        }

        @Test("A file that is locked once or twice per open is not watched each time")
        func rarely() throws {
            let place = try LockedFile()
            let known = place.keptKnown()
            defer { Glibc.close(known) }
            var seen: [[Int]] = []
            for kind in ["lock", "lock", "flock"] {
                let holder = try place.open()
                seen.append([try place.marks()])
                for words in [[kind, "unlock"], Array(repeating: [kind, "unlock"], count: 9).flatMap { $0 }] {
                    for word in words { try holder.does(word) }
                    seen[seen.count - 1].append(try place.marks())
                    if seen.count == 1 { break }
                }
                try place.close(holder)
                // The watching thread notices it a moment later.
                try place.fixture.wait(until: "it is watched no more") { try place.marks() == 0 }
            }
            // Not known at first. Then it had one lock, so a few more do not matter. Then it had
            // many, so the opening is enough.
            #expect(seen == [[0, 1], [0, 0, 0], [1, 1, 1]])
        }

        @Test("A granted file on a FUSE filesystem is fetched again with each lock")
        func server() throws {
            let fixture = try MountFixture()
            let source = try HangingSource("a", in: fixture)
            defer { source.end() }
            let place = try LockedFile(fixture, below: source.directory)
            let holder = try place.open()
            #expect(try place.isFetchedEachTime(by: holder))
            try place.close(holder)
        }

        @Test("A kernel without oplocks fetches data again with each lock")
        func without() throws {
            let place = try LockedFile(switches: ["GRANTFS_TEST_NO_OPLOCKS": "1"])
            let holder = try place.open()
            #expect(try place.isFetchedEachTime(by: holder))
            try holder.does("lock", "store:then", "unlock")
            #expect(try place.onDisk() == "then")
        }
    }
}

/// A file of three pages below a grant that is mounted.
struct LockedFile {
    let fixture: MountFixture
    let source: String
    let mount: String
    var file: String { source + "/file" }

    /// `below`: a directory of another filesystem to grant. `limit`: how many descriptors the daemon has.
    init(_ fixture: MountFixture? = nil, below: String? = nil, limit: Int? = nil, switches: [String: String] = [:]) throws {
        let fixture = try fixture ?? MountFixture()
        self.fixture = fixture
        // A system call that the daemon may not make ends it.
        fixture.switches = switches.merging(["GRANTFS_TEST_END_AT_CALLS": "1"]) { $1 }
        source = try below ?? fixture.source("a")
        // Not by the tests' own process: children of other tests that start meanwhile would have the file open as well.
        try Command.shell("head -c 12288 /dev/zero | tr '\\0' . > \"$1/file\"", source).orThrow()
        try fixture.grant(source, name: "a")
        mount = fixture.base + "/mount/a"
        if let limit {
            let mounting = [Programs.grantfs(in: fixture.environment), "mount", "default", fixture.base + "/mount"]
            try Command.run(["prlimit", "--nofile=\(limit):\(limit)"] + mounting, environment: fixture.environment).orThrow()
        } else {
            try fixture.mount()
        }
    }

    /// Holds the file open and mapped.
    func open(onHost: Bool = false) throws -> Holder { try Holder((onHost ? source : mount) + "/file") }

    /// A descriptor (O_PATH, so not an opener) that keeps the inode in the kernel and its state in
    /// the daemon, even if another test drops all caches.
    func keptKnown() -> Int32 { Glibc.open(mount + "/file", 0o10000000 | O_CLOEXEC) }

    /// Closes it, and waits until the daemons have closed it too, which takes a moment. Only a
    /// single opener gets a lease.
    func close(_ holder: Holder) throws {
        try holder.does("close")
        let script = "import fcntl, sys; fcntl.fcntl(open(sys.argv[1], 'r+b'), fcntl.F_SETLEASE, fcntl.F_WRLCK)"
        try fixture.wait(until: "nobody has the file open", within: 60) {
            try Command.run(["python3", "-I", "-c", script, file]).status == 0
        }
    }

    /// How many files the mount's daemon makes openings wait of.
    func marks() throws -> Int {
        let daemon = try fixture.daemon(at: fixture.base + "/mount")
        let script = """
            for task in /proc/$1/task/*; do
              if grep -q grantfs-openers $task/comm; then cat $task/fdinfo/* | grep -c '^fanotify ino' || true; fi
            done
            """
        return Int(try Command.shell(script, "\(daemon)").orThrow().trimmed) ?? -1
    }

    /// The contents of the file itself. It is opened for that.
    func onDisk() throws -> String {
        try Command.shell("dd if=\"$1\" bs=1 skip=5000 count=4 status=none", file).orThrow().text
    }

    /// Whether each lock costs a READ, and its end a WRITE of the stored data. Now and then a
    /// change beside the mount costs one or two more.
    func isFetchedEachTime(by holder: Holder) throws -> Bool {
        try holder.does("lock", "store:warm", "unlock")
        let before = try transfers()
        for _ in 0..<10 { try holder.does("lock", "store:mine", "unlock") }
        return try transfers() - before >= 10
    }

    private func transfers() throws -> Int {
        var requests: [String: Int] = [:]
        // None where the daemon stood for as long as status waits for it.
        try fixture.wait(until: "the daemon has answered", within: 30) {
            requests = try fixture.status().mounts.first { $0.mountpoint == fixture.base + "/mount" }?.requests ?? [:]
            return !requests.isEmpty
        }
        return requests["READ", default: 0] + requests["WRITE", default: 0]
    }

    struct Holder {
        private let child: Child
        private static let script = """
            import fcntl, mmap, sys
            file = open(sys.argv[1], 'r+b', buffering=0)
            memory = mmap.mmap(file.fileno(), 0)
            print('open', flush=True)
            for line in sys.stdin:
                what, _, word = line.strip().partition(':')
                if what == 'lock': fcntl.lockf(file, fcntl.LOCK_EX)
                if what == 'flock': fcntl.flock(file, fcntl.LOCK_EX)
                if what == 'unlock': fcntl.lockf(file, fcntl.LOCK_UN), fcntl.flock(file, fcntl.LOCK_UN)
                if what == 'store': memory[5000:5004] = word.encode()
                if what == 'close': memory.close(), file.close()
                print(memory[5000:5004].decode() if what == 'see' else 'done', flush=True)
            """

        init(_ path: String) throws {
            child = try Child(["python3", "-I", "-c", Self.script, path])
            try child.expect("open")
        }

        /// `lock`, `flock`, `unlock`, `store:WORD` of four letters, `close`.
        func does(_ words: String...) throws {
            for word in words {
                child.send(word)
                try child.expect("done")
            }
        }

        /// The contents of its mapping.
        var sees: String? {
            child.send("see")
            return child.line()
        }
    }
}
