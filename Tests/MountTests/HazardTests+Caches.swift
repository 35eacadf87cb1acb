import Foundation
import TestSupport
import Testing

/// What the kernel caches for one user must not reach another, and what it forgets must be forgotten here.
extension MountTests.Hazards {
    @Test(
        "whoever may not look into a directory sees nothing of what somebody else made the kernel cache",
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
        // The other way round: what was open to the user is closed to him once it is closed.
        try Command.run(["chmod", "755", mount + "/closed"]).orThrow()
        #expect(try Command.run(["cat", mount + "/closed/file"], as: user).text == "secret\n")
        try Command.run(["chmod", "700", mount + "/closed"]).orThrow()
        #expect(try Probe.call("stat", mount + "/closed/file", as: user) == "EACCES")
        try held.close()
    }

    @Test(
        "memory goes back after a walk over 100,000 files, once the kernel has forgotten them",
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
        func walk() throws { try Command.shell("find \"$1\" -type f -printf '%s\\n' | wc -l | grep -qx 100000", mountpoint).orThrow() }
        func inodes() throws -> Int { try #require(try fixture.status().mounts.first).inodes }
        func forget() throws { try Command.shell("echo 2 > /proc/sys/vm/drop_caches").orThrow() }
        let before = (inodes: try inodes(), kilobytes: Processes.residentKilobytes(daemon))
        var high = 0
        var after: [Int] = []
        for _ in 0..<3 {
            // Whoever else drops caches meanwhile makes the kernel forget some of them early.
            for _ in 0..<5 {
                try walk()
                if try inodes() >= 100_000 { break }
            }
            #expect(try inodes() >= 50_000)
            high = max(high, Processes.residentKilobytes(daemon))
            try fixture.wait(until: "the daemon has forgotten what the kernel has", within: 60) {
                try forget()
                return try inodes() <= before.inodes + 200
            }
            after.append(Processes.residentKilobytes(daemon))
        }
        print("resident: \(before.kilobytes) kB before, \(high) kB at the most, \(after) kB after the kernel had forgotten")
        // An allocator keeps something for the next time; what counts is that it is not every file ever seen, and does not add up.
        #expect(after[0] - before.kilobytes < 100 << 10)
        // A node takes more than 200 bytes, so a walk that left them behind would show as 20 MB, two as 40.
        #expect(after[2] - after[0] < 20 << 10)
        #expect(try Command.shell("ls /proc/\(daemon)/fd | wc -l").trimmed != "0")
    }
}
