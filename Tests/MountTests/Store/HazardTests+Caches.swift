import Foundation
import TestSupport
import Testing

/// What the kernel caches for one user must not reach another, and what it forgets must be forgotten here.
extension MountTests.Hazards {
    @Test(
        "Cached names and data are hidden from users without access",
        .enabled(if: Identity.isRoot && Machine.plainUser != nil, needsUser), arguments: ["shared", "exclusive", "none"])
    func othersNames(cache: String) throws {
        let user = Machine.plainUser!
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try Command.shell(
            """
            cd "$1"; mkdir -p closed/below named; echo secret > closed/file; echo secret > closed/below/file; ln -s target closed/link
            chmod 700 closed; echo secret > named/file; chmod 711 named; chmod 600 named/file
            """, source
        ).orThrow()
        try fixture.grant(source)
        let mount = try fixture.mount(options: "allow_other,cache=\(cache)") + "/a"
        let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mount + "/closed/file"))
        for _ in 0..<2 {
            // Warm for root: names, absent names, attributes, listings, link texts, data.
            try Command.shell(
                "cd \"$1\"; ls -lR . > /dev/null; cat closed/file closed/below/file named/file; readlink closed/link; stat closed/absent || true",
                mount
            ).orThrow()
            for name in ["closed/file", "closed/below", "closed/below/file", "closed/link", "closed/absent"] {
                #expect(try Probe.call("stat", "\(mount)/\(name)", as: user) == "EACCES", "\(name)")
                #expect(try Probe.call("open", "\(mount)/\(name)", as: user) == "EACCES", "\(name)")
            }
            #expect(try Probe.call("open", mount + "/named/file", as: user) == "EACCES")
            for directory in ["closed", "named"] {
                let listing = try Command.run(["ls", "\(mount)/\(directory)"], as: user)
                #expect(listing.status != 0 && listing.text.isEmpty, "\(listing)")
            }
        }
        // In reverse: a file that was open to the user is refused once it is closed to the user.
        try Command.run(["chmod", "755", mount + "/closed"]).orThrow()
        #expect(try Command.run(["cat", mount + "/closed/file"], as: user).text == "secret\n")
        try Command.run(["chmod", "700", mount + "/closed"]).orThrow()
        #expect(try Probe.call("stat", mount + "/closed/file", as: user) == "EACCES")
        try held.close()
    }

    @Test(
        "The daemon returns its memory after a walk over many files",
        .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    func memory() throws {
        let fixture = try MountFixture()
        let source = try fixture.source("a")
        try Command.shell(
            "cd \"$1\"; for d in $(seq 100); do mkdir d$d; (cd d$d; seq -f 'file-%.0f' 1000 | xargs touch); done", source
        ).orThrow()
        try fixture.grant(source)
        let mountpoint = try fixture.mount()
        let daemon = try fixture.daemon(at: mountpoint)
        func walk(_ directory: String = "") throws {
            try Command.shell("find \"$1\" -type f -printf '%s\n' | wc -l", mountpoint + directory).orThrow()
        }
        func known() throws -> Int { try #require(try fixture.status().mounts.first).inodes }
        /// The daemon's own memory, which no other process changes.
        func kilobytes() -> Int { Processes.anonymousKilobytes(daemon) }
        func forget(downTo inodes: Int, kilobytes limit: Int) throws -> Int {
            var dropped = Date.distantPast
            try fixture.wait(until: "the daemon has forgotten what the kernel has, and given its memory back", within: 180) {
                // Seldom: it takes the names and inodes of all other tests as well.
                if Date().timeIntervalSince(dropped) > 5 {
                    try KernelCaches.drop()
                    dropped = Date()
                }
                return try known() <= inodes && kilobytes() <= limit
            }
            return kilobytes()
        }
        // The first files and requests bring threads and buffers that stay.
        try walk("/a/d1")
        let before = try forget(downTo: 20, kilobytes: .max)
        var (high, after): (Int, [Int]) = (0, [])
        for isHeld in [false, false, true] {
            // Other processes that drop caches make the kernel forget some of them early.
            for _ in 0..<5 {
                try walk()
                if try known() >= 100_000 { break }
            }
            #expect(try known() >= 50_000)
            high = max(high, kilobytes())
            // One file of each directory, so that no thousand nodes go together.
            let held = try (isHeld ? 1...100 : 1...1).map {
                try FileHandle(forReadingFrom: URL(fileURLWithPath: "\(mountpoint)/a/d\($0)/file-500"))
            }
            // A node takes 150 bytes: all of them 15 MB.
            after.append(try forget(downTo: isHeld ? 500 : 20, kilobytes: before + (isHeld ? 10 << 10 : 6 << 10)))
            for file in held { try file.close() }
        }
        print("the daemon's own memory: \(before) kB before, \(high) kB at the most, \(after) kB after the kernel had forgotten")
        #expect(high - before > 10 << 10)
    }
}
