import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Files that are locked in a mount while nobody else has them open: their locks cost little, and whoever opens such a file after all finds
    /// it as if they did not.
    @Suite(
        .enabled(
            if: Identity.isRoot && Command.exists("python3"), Comment(rawValue: "\(Machine.needsRoot), \(Machine.needs("python3"))")))
    struct Oplocks {
        /// Who opens the file after it was locked in the mount.
        enum Opener: String, CaseIterable, Sendable {
            case host, anotherName, byHeldPath, anotherMount, anotherGrant
        }

        @Test(
            "whoever opens the file finds what was stored in mappings of it, whether its lock is held or not", arguments: Opener.allCases)
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
            /// What somebody who opens the file now finds in it.
            func found() throws -> String {
                let open = opener == .byHeldPath ? "p = os.open(sys.argv[1], os.O_PATH); f = open(f'/proc/self/fd/{p}', 'rb')" : "f = open(sys.argv[1], 'rb')"
                let script = "import os, sys; \(open); f.seek(5000); print(f.read(4).decode())"
                return try Command.run(["python3", "-I", "-c", script, path]).orThrow().trimmed
            }
            for isLocked in [false, true] {
                let holder = try place.open()
                #expect(try place.cost(of: holder) == 0, "nobody else has it open, so nothing is dropped or written down")
                try holder.does("lock", "store:held")
                if !isLocked { try holder.does("store:free", "unlock") }
                #expect(try found() == (isLocked ? "held" : "free"))
                // From now on it is written down when the lock ends.
                try holder.does(isLocked ? "store:then" : "lock", "store:then", "unlock")
                #expect(try place.onDisk() == "then")
                #expect(try place.cost(of: holder) > 0, "somebody else has opened it")
                try holder.does("close")
            }
        }

        @Test("a lock shows what was stored in a mapping on the host, before it was first taken and afterwards")
        func hostStores() throws {
            let place = try LockedFile()
            let holder = try place.open()
            #expect(holder.sees == "....")
            // A store into a mapping is told to nobody.
            let before = try place.open(onHost: true)
            try before.does("store:from", "close")
            try holder.does("lock")
            #expect(holder.sees == "from")
            try holder.does("unlock")
            #expect(try place.cost(of: holder) == 0)
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

        @Test("a file that is open on the host when it is first locked is shared until the mount has closed it")
        func openBefore() throws {
            let place = try LockedFile()
            let host = try place.open(onHost: true)
            let holder = try place.open()
            #expect(try place.cost(of: holder) > 0)
            #expect(host.sees == "mine")
            try host.does("close")
            #expect(try place.cost(of: holder) > 0, "it cannot be looked at anew while it is open twice")
            try holder.does("close")
            // It was locked before, so it is looked at when it is opened: the second who opens it finds it looked at.
            let (first, second) = try (place.open(), place.open())
            #expect(try place.cost(of: first) == 0)
            #expect(try place.cost(of: second) == 0)
            #expect(first.sees == "mine")
            try first.does("close")
            #expect(try place.cost(of: second) == 0)
        }

        @Test("a file that a server has is never nobody else's: it can be changed where no opening shows")
        func server() throws {
            let fixture = try MountFixture()
            let source = try HangingSource("a", in: fixture)
            defer { source.end() }
            let place = try LockedFile(fixture, below: source.directory)
            let holder = try place.open()
            #expect(try place.cost(of: holder) > 0)
            try holder.does("close")
        }

        @Test("where openings cannot be made to wait, each lock costs what it did, and what was stored is there when it ends")
        func without() throws {
            let place = try LockedFile(switches: ["GRANTFS_TEST_NO_OPLOCKS": "1"])
            let holder = try place.open()
            #expect(try place.cost(of: holder) > 0)
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
        fixture.switches = switches
        source = try below ?? fixture.source("a")
        try Data(repeating: 0x2E, count: 12_288).write(to: URL(fileURLWithPath: source + "/file"))
        try fixture.grant(source, name: "a")
        mount = fixture.base + "/mount/a"
        if let limit {
            let command = ["prlimit", "--nofile=\(limit):\(limit)", Programs.grantfs(for: .current), "mount", "default", fixture.base + "/mount"]
            try Command.run(command, environment: fixture.environment).orThrow()
        } else {
            try fixture.mount()
        }
    }

    /// Holds the file open and mapped.
    func open(onHost: Bool = false) throws -> Holder { try Holder((onHost ? source : mount) + "/file") }

    /// What is in the file itself. It is opened for that.
    func onDisk() throws -> String {
        let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: file))
        try handle.seek(toOffset: 5000)
        return String(decoding: try handle.read(upToCount: 4) ?? Data(), as: UTF8.self)
    }

    /// How many READs and WRITEs ten locks with a store in a mapping take.
    func cost(of holder: Holder) throws -> Int {
        try holder.does("lock", "store:warm", "unlock")
        let before = try transfers()
        for _ in 0..<10 { try holder.does("lock", "store:mine", "unlock") }
        return try transfers() - before
    }

    private func transfers() throws -> Int {
        let requests = try fixture.status().mounts.first { $0.mountpoint == fixture.base + "/mount" }?.requests ?? [:]
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
                if what == 'unlock': fcntl.lockf(file, fcntl.LOCK_UN)
                if what == 'store': memory[5000:5004] = word.encode()
                if what == 'close': memory.close(), file.close()
                print(memory[5000:5004].decode() if what == 'see' else 'done', flush=True)
            """

        init(_ path: String) throws {
            child = try Child(["python3", "-I", "-c", Self.script, path])
            try child.expect("open")
        }

        /// `lock`, `unlock`, `store:WORD` of four letters, `close`.
        func does(_ words: String...) throws {
            for word in words {
                child.send(word)
                try child.expect("done")
            }
        }

        /// What is in its mapping.
        var sees: String? {
            child.send("see")
            return child.line()
        }
    }
}
