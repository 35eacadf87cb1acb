import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct BadInput {
        @Test(
            "A host reports why it cannot open the directory of a grant"
        )
        func locators() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let base = try fleet.files.directory("source")
            try "".write(toFile: base + "/file", atomically: false, encoding: .utf8)
            try FileManager.default.createSymbolicLink(atPath: base + "/link", withDestinationPath: try fleet.source("real"))
            for (name, why) in [("nowhere", "no such directory"), ("file", "not a directory"), ("link", "a link leads")] {
                let output = try fleet.administer("grant", "--fleet", "\(base)/\(name)", "--view", "v")
                #expect(output.status == 3 && output.errors.lowercased().contains(why.lowercased()), "\(output)")
                #expect(FleetFixture.reading("\(mount)/\(name)/file") == ENOENT)
            }
            #expect(try fleet.host("h1")?.problems.count == 3)
            try FileManager.default.createDirectory(atPath: base + "/nowhere", withIntermediateDirectories: false)
            try "hello".write(toFile: base + "/nowhere/file", atomically: false, encoding: .utf8)
            try fleet.awaitReading(mount + "/nowhere/file", 0)
            // Another directory in its place is not entered.
            try fleet.files.wait(until: "one problem less") { try fleet.host("h1")?.problems.count == 2 }
            try Command.shell(
                "mv \"$1/nowhere\" \"$1/away\"; rm -rf \"$1/away\"; mkdir \"$1/nowhere\"; echo other >\"$1/nowhere/file\"", base
            ).orThrow()
            try fleet.awaitReading(mount + "/nowhere/file", ENOENT)
            pause(milliseconds: 1500)
            #expect(FleetFixture.reading(mount + "/nowhere/file") == ENOENT)
        }

        @Test("A bad invitation or password is refused with a reason")
        func words() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let file = fleet.files.base + "/bad.invitation"
            let good = try String(contentsOfFile: fleet.store("h1") + "/fleet/host.json", encoding: .utf8)
            let password = try #require(good.firstMatch(of: /"password": ?"([0-9a-f]+)"/)?.1)
            let cases: [(contents: String, mode: mode_t, said: String)] = [
                (good, 0o644, "others may read it"), ("nonsense", 0o600, "is not an invitation to a fleet"),
                ("{}", 0o600, "it is something else"),
                (good.replacingOccurrences(of: "\"grantfs-fleet\":1", with: "\"grantfs-fleet\":2"), 0o600, "of a newer version"),
                (
                    good.replacingOccurrences(of: String(password), with: "guess"), 0o600,
                    "does not know the user “grantfs-host-h1” with this password"
                ),
                (good.replacingOccurrences(of: fleet.servers.list, with: "http://127.0.0.1:1"), 0o600, "no endpoint of etcd answers"),
            ]
            for (contents, mode, said) in cases {
                try contents.write(toFile: file, atomically: false, encoding: .utf8)
                chmod(file, mode)
                let output = try fleet.on("fresh", "fleet", "join", file, "--timeout", "2")
                #expect(output.status == 1 && output.errors.contains(said), "\(said): \(output)")
                #expect(access(fleet.store("fresh") + "/fleet/host.json", F_OK) != 0, "\(said)")
            }
            let typed: [([String], Int32, String)] = [
                (["fleet", "frobnicate"], 2, "unknown subcommand “frobnicate” of fleet"), (["fleet", "invite"], 2, "HOST is missing"),
                (["fleet", "hosts", "--label", "role=build"], 2, "it is an option of fleet invite"),
                (["fleet", "--lease", "15s", "join", "file"], 2, "it is an option of fleet init"),
                (["repair", "--fleet", "nothing"], 1, "the fleet has no grant “nothing”"),
                (["repair", "--fleet", "x", "--confirm", "/x"], 2, "does not go with --fleet"),
                (["list", "--fleet", "nothing"], 1, "the fleet has no grant “nothing”"),
                (["fleet", "invite", "a/b"], 2, "invalid host id"), (["fleet", "invite", "h9", "--label", "role"], 2, "invalid label"),
                (["fleet", "init", "--endpoints", "ftp://x"], 2, "invalid endpoint of etcd"),
                (["grant", "--fleet", "relative"], 2, "not an absolute path"), (["grant", "--fleet", "/a/../b"], 2, "empty parts"),
                (["grant", "--fleet", "/a", "--hosts", "role"], 2, "invalid term"),
                (["grant", "/tmp", "--hosts", "a=b"], 2, "is for --fleet"),
                (["revoke", "--fleet", "nothing"], 1, "the fleet has no grant “nothing”"),
                (["revoke", "--fleet", "--path", "/a"], 2, "does not go with --fleet"),
            ]
            for (words, status, said) in typed {
                let output = try Command.run([Programs.grantfs] + words, environment: ["GRANTFS_STORE": fleet.store("administrator")])
                #expect(output.status == status && output.errors.contains(said), "\(words): \(output)")
            }
            let elsewhere = try fleet.on("h1", "list", "--fleet")
            #expect(elsewhere.status == 1 && elsewhere.errors.contains("no fleet is administered from here"))
        }

        @Test(
            "A host whose clock is a year wrong opens no grant that expires",
            .enabled(if: Command.exists("clang"), "needs clang"), arguments: [-31_536_000, 31_536_000])
        func clocks(shift: Int) throws {
            let fleet = try FleetFixture(hosts: [])
            let (library, seconds) = (fleet.files.base + "/shift.so", fleet.files.base + "/seconds")
            let code = URL(fileURLWithPath: #filePath).appendingPathComponent("../../ClockShift/shift.c").standardized.path
            try Command.run(["clang", "-shared", "-fPIC", "-O1", "-o", library, code]).orThrow()
            try "\(shift)".write(toFile: seconds, atomically: true, encoding: .utf8)
            try fleet.invite("h1")
            try fleet.startAgent("h1", environment: ["LD_PRELOAD": library, "CLOCK_SHIFT": seconds])
            try fleet.awaitLive(["h1"])
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source("lasting"), "--view", "v").orThrow()
            let granted = try fleet.administer("grant", "--fleet", try fleet.source("passing"), "--view", "v", "--expires", "1h")
            #expect(granted.errors.contains("the clocks of this host and of etcd differ"), "\(granted)")
            try fleet.awaitReading(mount + "/lasting/file", 0)
            #expect([EACCES, ENOENT].contains(FleetFixture.reading(mount + "/passing/file")))
            fleet.killAgent("h1")
            try fleet.awaitReading(mount + "/lasting/file", EACCES)
            // With a clock that is right it opens.
            try fleet.startAgent("h1")
            for name in ["lasting", "passing"] { try fleet.awaitReading("\(mount)/\(name)/file", 0) }
        }

        @Test("A full etcd database refuses grants and permits a revocation")
        func fullDatabase() throws {
            let fleet = try FleetFixture(hosts: ["h1"], options: FleetFixture.smallDatabase)
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let root = try fleet.rootOfEtcd()
            try fleet.fill { number, size in
                try fleet.servers.etcdctl("put", "rubbish\(number)", user: root, input: String(repeating: "x", count: size)).status == 0
            }
            let refused = try fleet.administer("grant", "--fleet", try fleet.source("y"), "--view", "v", "--name", "y")
            #expect(refused.status == 1 && refused.errors.contains("the database of etcd is full"), "\(refused)")
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "0.5")
            #expect(revoked.status == 3, "hosts cannot say anything: \(revoked)")
            // It was deleted, for which there is room.
            try fleet.awaitReading(mount + "/x/file", ENOENT)
            #expect(try fleet.administer("fleet", "status").status == 1)
        }
    }
}

extension FleetFixture {
    /// Of whole pages, because etcd compares the pages in use and what is put: in part of a page, one byte would have room until all
    /// free pages are used up.
    static let smallDatabase = ["--quota-backend-bytes", "\(488 * 4096 + 1)"]

    /// Fills the database until not even a byte has room: commands disarm the alarm and try again.
    func fill(_ put: (_ number: Int, _ size: Int) throws -> Bool) throws {
        var number = 0
        // Of the last but one size each takes a page, so few find room in pages that are free.
        for size in [100_000, 10_000, 3_000, 1] {
            if number > 0 { try servers.etcdctl("alarm", "disarm", user: try rootOfEtcd()).orThrow() }
            while number < 1_000, try put(number, size) { number += 1 }
        }
        #expect(number < 1_000)
    }

    /// `root:PASSWORD`, for etcd's own client.
    func rootOfEtcd() throws -> String {
        struct File: Decodable {
            let user: String
            let password: String
        }
        let data = try Data(contentsOf: URL(fileURLWithPath: store("administrator") + "/fleet/administrator.json"))
        let file = try JSONDecoder().decode(File.self, from: data)
        return "\(file.user):\(file.password)"
    }
}

extension EtcdServers {
    func peer(of member: Member) -> String { "http://127.0.0.1:\(member.peer)" }
}
