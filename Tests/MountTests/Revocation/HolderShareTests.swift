import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A user takes as much of a mount's resources as possible. Users of another grant must not
    /// notice, nor the owner who revokes.
    @Suite(.serialized) struct HolderShareTests {
        struct Mounted {
            let fixture: MountFixture
            let mountpoint: String

            /// The grants greedy, other and third, each with files f0, f1 and so on. `limits`: words for prlimit(1), which the daemon is started with.
            init(_ owner: Identity = .current, limits: [String] = [], files: Int = 1) throws {
                fixture = try MountFixture(owner: owner)
                for name in ["greedy", "other", "third"] {
                    let source = try fixture.source(name)
                    try Command.shell("cd \"$1\"; for i in $(seq 0 $2); do echo text > f$i; done", source, "\(files)", as: owner).orThrow()
                    try fixture.grant(source)
                }
                mountpoint = fixture.base + "/mount"
                let command = (limits.isEmpty ? [] : ["prlimit"] + limits) + [Programs.grantfs(for: owner), "mount", "default", mountpoint]
                try Command.run(command, as: owner, environment: fixture.environment).orThrow()
            }

            func attack(_ arguments: String...) throws -> Child {
                try Child([Programs.attacker(for: fixture.owner)] + arguments, identity: fixture.owner)
            }

            /// Others open, make and list, and the third grant is withdrawn, as without the attack.
            func expectOthersGoOn(_ when: String) throws {
                let script = "cd \"$1\"; exec 3<f0 4<f0 5<. 6<.; echo new > made; rm made; cat <&3; ls"
                let used = try Command.shell(script, mountpoint + "/other", as: fixture.owner, within: 60)
                #expect(used.status == 0 && used.text == "text\nf0\nf1\n", "\(when): \(used)")
                let revoked = try fixture.grantfs("revoke", "third", "--json")
                #expect(revoked.status == 0, "\(when): \(revoked)")
                #expect(try Probe.call("stat", mountpoint + "/third/f0", as: fixture.owner) == "EACCES")
                try fixture.restore("third")
                #expect(try Command.run(["cat", mountpoint + "/third/f0"], as: fixture.owner).text == "text\n", "\(when)")
                #expect(try Command.run(["cat", mountpoint + "/other/f0"], as: fixture.owner).text == "text\n", "\(when)")
            }
        }

        /// The holder and the limit of descriptors, or nil for all.
        static let holders: [(owner: Identity, limit: Int?)] =
            (Identity.isRoot ? [(.current, 1024), (.current, 256)] : [])
            + (Machine.usersCanMount ? [Machine.plainUser].compactMap { $0 }.flatMap { [($0, 1024), ($0, nil)] } : [])

        @Test("A user who holds all descriptors gets ENFILE and takes none from others", arguments: 0..<holders.count)
        func descriptors(number: Int) throws {
            let (owner, limit) = Self.holders[number]
            let mounted = try Mounted(owner, limits: limit.map { ["--nofile=\($0):\($0)"] } ?? [])
            for how in ["file", "directory", "kept"] {
                let path = mounted.mountpoint + "/greedy" + (how == "file" ? "/f0" : "")
                let holder = try mounted.attack("hold_files", path, "3", how)
                try holder.expect("ready", within: 120)
                let words = (holder.line() ?? "").split(separator: " ")
                print("\(owner), \(limit.map(String.init) ?? "no") limit, \(how): held \(words)")
                #expect(words.last == "ENFILE", "\(how): \(words)")
                // Nearly all, as long as no other user wants any.
                if let limit, let count = words.first.flatMap({ Int($0) }) { #expect(count >= limit / 3, "\(how): \(count)") }
                try mounted.expectOthersGoOn("while \(how) is held")
                holder.send("go")
                try holder.expect("gone")
                try mounted.fixture.wait(until: "what he let go of can be opened") {
                    try Command.run(["cat", mounted.mountpoint + "/greedy/f0"], as: owner).text == "text\n"
                }
            }
            #expect(try mounted.fixture.grantfs("revoke", "greedy").status == 0)
        }

        /// The hard limit of descriptors of a process, if root may raise it. Nil without
        /// CAP_SYS_RESOURCE, or if it takes too long to open that many.
        static let limit: Int? = {
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            let raise = ["prlimit", "--nofile=\(limit.rlim_max + 1):\(limit.rlim_max + 1)", "true"]
            guard 4096...40_000 ~= limit.rlim_max, (try? Command.run(raise))?.status == 0 else { return nil }
            return Int(limit.rlim_max)
        }()

        @Test(
            "A mount of root has more open files than a process may have",
            .enabled(if: limit != nil, "the limit of descriptors cannot be raised here, or is high anyway"))
        func beyondTheLimit() throws {
            let limit = try #require(Self.limit)
            let mounted = try Mounted()
            let holder = try mounted.attack("hold_files", mounted.mountpoint + "/greedy/f0", "2", "file")
            try holder.expect("ready", within: 120)
            let words = (holder.line() ?? "").split(separator: " ")
            // What ends it is the program's own limit, as natively.
            #expect(words.last == "EMFILE" && (words.first.flatMap { Int($0) } ?? 0) > limit, "\(words)")
            try mounted.expectOthersGoOn("while more is open than a process may have")
        }

        @Test(
            "Hung callers of one grant leave workers to another grant",
            arguments: ["read", "stat", "directory"])
        func hungCallers(call: String) throws {
            let fixture = try MountFixture()
            let source = try HangingSource("hung", in: fixture)
            defer { source.end() }
            for number in 0..<1100 {
                try source.file(call == "read" ? "f\(number)" : "d\(number)/x", size: 4096)
            }
            let plain = try fixture.source("other")
            try Data("text\n".utf8).write(to: URL(fileURLWithPath: plain + "/f0"))
            try fixture.grant(source.directory)
            try fixture.grant(plain)
            let mountpoint = try fixture.mount(options: "cache=none")
            let path = mountpoint + "/hung/" + (call == "read" ? "f%d" : call == "stat" ? "d%d/x" : "d%d")
            try source.hang(call == "stat" ? "getattr" : call == "directory" ? "opendir" : "read")
            let callers = try Child([Programs.attacker, "callers", call, path, "1100"])
            defer { withExtendedLifetime(callers) { source.end() } }
            try callers.expect("ready", within: 120)
            try fixture.wait(until: "all are waiting for the source", within: 60) {
                let hung = try fixture.status().mounts.first?.grants.first { $0.name == "hung" }
                return (hung?.inFlight ?? 0) >= 200
            }
            for _ in 0..<20 {
                let read = try Command.run(
                    ["cat", plain.replacingOccurrences(of: fixture.base + "/source", with: mountpoint) + "/f0"], within: 60)
                #expect(read.text == "text\n", "\(read)")
            }
            #expect(try Command.run(["ls", mountpoint + "/other"], within: 60).text == "f0\n")
            callers.send("count")
            #expect(callers.line() == "0")
            #expect(try fixture.revoke("hung")[0].isConfirmed)
            callers.send("all")
            #expect(callers.line(within: 60) == "EACCES 1100")
            #expect(try Command.run(["cat", mountpoint + "/other/f0"], within: 60).text == "text\n")
        }

        @Test(
            "Hung callers at the user's thread limit leave threads to another grant",
            .enabled(if: Machine.usersCanMount && Machine.loneUser != nil, "plain users cannot mount here, or none can be made"))
        func threads() throws {
            // The limit counts every thread of the user.
            let owner = try #require(Machine.loneUser)
            let mounted = try Mounted(owner, limits: ["--nproc=45"])
            let fixture = mounted.fixture
            let source = try HangingSource("hung", in: fixture, squashes: true)
            defer { source.end() }
            for number in 0..<120 { try source.file("f\(number)") }
            chmod(source.behind, 0o777)
            try fixture.grant(source.directory)
            let path = mounted.mountpoint + "/hung/f%d"
            try fixture.wait(until: "the grant is there") {
                try Command.run(["cat", mounted.mountpoint + "/hung/f0"], as: owner).status == 0
            }
            try source.hang("read")
            let callers = try mounted.attack("callers", "read", path, "120")
            defer { withExtendedLifetime(callers) { source.end() } }
            try callers.expect("ready")
            try fixture.wait(until: "some are waiting for the source", within: 60) {
                let hung = try fixture.status().mounts.first?.grants.first { $0.name == "hung" }
                return (hung?.inFlight ?? 0) >= 4
            }
            for _ in 0..<10 {
                #expect(try Command.run(["cat", mounted.mountpoint + "/other/f0"], as: owner, within: 60).text == "text\n")
            }
            source.goOn()
            callers.send("all")
            #expect(callers.line(within: 60) == "OK 120")
        }
    }
}
