import GrantFleet
import Foundation
import Glibc
import GrantModel
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite struct AHostThatIsTakenOver {
        @Test("A host's credentials permit only reading its grants and reporting")
        func roles() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x", "--hosts", "host=h2")
                .orThrow().trimmed
            let shared = try fleet.administer("grant", "--fleet", try fleet.source("y"), "--view", "v", "--name", "y").orThrow().trimmed
            let client = try EtcdClient(try FleetCredentials(file: fleet.store("h1") + "/fleet/host.json").settings)
            let other = try #require(
                try EtcdClient(try FleetCredentials(file: fleet.store("administrator") + "/fleet/administrator.json").settings)
                    .read("grantfs/hosts/h2/agent").entry)

            let forged = "grantfs/grants/host=h1/\(GrantID.random())"
            typealias Attempt = () throws(EtcdFailure) -> Void
            let attempts: [(String, Attempt)] = [
                ("grants itself something", { () throws(EtcdFailure) in _ = try client.transaction(then: [.put(forged, [])]) }),
                (
                    "changes a grant",
                    { () throws(EtcdFailure) in _ = try client.transaction(then: [.put("grantfs/grants/all/\(shared)", [])]) }
                ),
                (
                    "deletes a grant",
                    { () throws(EtcdFailure) in _ = try client.transaction(then: [.delete("grantfs/grants/all/\(shared)")]) }
                ),
                (
                    "deletes everything",
                    { () throws(EtcdFailure) in _ = try client.transaction(then: [.deleteRange("grantfs/", "grantfs0")]) }
                ),
                (
                    "speaks for another",
                    { () throws(EtcdFailure) in _ = try client.transaction(then: [.put("grantfs/hosts/h2/state", [])]) }
                ),
                ("silences another", { () throws(EtcdFailure) in _ = try client.transaction(then: [.delete("grantfs/hosts/h2/agent")]) }),
                ("ends another's lease", { () throws(EtcdFailure) in try client.revokeLease(other.lease) }),
                ("rings", { () throws(EtcdFailure) in _ = try client.transaction(then: [.put("grantfs/bell", [])]) }),
                ("changes its labels", { () throws(EtcdFailure) in _ = try client.transaction(then: [.put("grantfs/registry/h1", [])]) }),
                ("changes the format", { () throws(EtcdFailure) in _ = try client.transaction(then: [.put("grantfs/format", [])]) }),
                ("forges the log", { () throws(EtcdFailure) in _ = try client.transaction(then: [.put("grantfs/log/1", [])]) }),
                ("reads another's grant", { () throws(EtcdFailure) in _ = try client.read("grantfs/grants/host=h2/\(id)") }),
                ("lists all grants", { () throws(EtcdFailure) in _ = try client.list("grantfs/grants/") }),
                ("reads another's labels", { () throws(EtcdFailure) in _ = try client.read("grantfs/registry/h2") }),
                ("reads another's state", { () throws(EtcdFailure) in _ = try client.list("grantfs/hosts/") }),
                ("reads the log", { () throws(EtcdFailure) in _ = try client.list("grantfs/log/") }),
                (
                    "watches all grants",
                    { () throws(EtcdFailure) in try client.watch("grantfs/grants/", from: 1, milliseconds: 10_000) { _ in false } }
                ),
                ("gets a role", { () throws(EtcdFailure) in try client.give("grantfs-host-h1", "grantfs-administrator") }),
                ("makes a user", { () throws(EtcdFailure) in try client.setUser("more", password: "p") }),
            ]
            for (what, attempt) in attempts {
                do throws(EtcdFailure) {
                    try attempt()
                    Issue.record("a host \(what)")
                } catch {
                    #expect(error == .denied, "a host \(what)")
                }
            }
            // What it is for.
            #expect(try client.list("grantfs/grants/all/").entries.map(\.key) == ["grantfs/grants/all/\(shared)"])
            #expect(try client.list("grantfs/grants/host=h1/").entries.isEmpty)
            #expect(try client.transaction(then: [.put("grantfs/hosts/h1/more", [])]).succeeded)
            // Nothing of all that has changed anything.
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--json").orThrow().decoded(as: [FleetRevocation].self)
            #expect(revoked[0].hosts.map(\.host) == ["h2"] && revoked[0].state("h2") == "confirmed")
        }

        @Test("A removed host loses its grants once its lease has ended")
        func takenOut() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            try fleet.administer("fleet", "leave", "h1").orThrow()
            // The command waits for it, although the fleet has forgotten it.
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60", "--json").orThrow().decoded(
                as: [FleetRevocation].self)
            #expect(revoked[0].state("h1") == "fenced" && revoked[0].state("h2") == "confirmed", "\(revoked)")
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            #expect(try fleet.administer("fleet", "leave", "h1").status == 1)
        }

        @Test("A host that leaves the fleet drops the fleet's grants")
        func leaves() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            try fleet.on("h1", "grant", try fleet.source("own"), "--view", "v").orThrow()
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let busy = try fleet.on("h1", "fleet", "leave")
            #expect(busy.status == 1 && busy.errors.contains("its agent runs"))
            fleet.killAgent("h1")
            try fleet.on("h1", "fleet", "leave").orThrow()
            #expect(FleetFixture.reading(mount + "/x/file") == ENOENT)
            #expect(FleetFixture.reading(mount + "/own/file") == 0)
            #expect(try fleet.host("h1")?.state == "gone")
            #expect(try fleet.on("h1", "agent").errors.contains("this host is in no fleet"))
        }
    }

    @Suite struct AFleetWithCertificates {
        @Test("A fleet with certificates refuses clients without one")
        func certificates() throws {
            let fleet = try FleetFixture(hosts: ["h1"], .certificates)
            let mount = try fleet.mount("h1")
            let granted = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            #expect(!granted.errors.contains("unencrypted"))
            try fleet.awaitReading(mount + "/x/file", 0)
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            let named = ["--cert", fleet.servers.directory + "/named.pem", "--key", fleet.servers.directory + "/named.key"]
            for words in [["fleet", "invite", "h2"] + named, ["fleet", "init", "--endpoints", fleet.servers.list] + named] {
                let output = try Command.run([Programs.grantfs] + words, environment: ["GRANTFS_STORE": fleet.store("administrator")])
                #expect(output.status == 2 && output.errors.contains("its subject has a common name (CN)"), "\(output)")
            }
            let bare = try fleet.administer("fleet", "invite", "h2")
            #expect(bare.status == 2 && bare.errors.contains("give the host's own with --cert and --key"))
            // Of another authority.
            let file = fleet.store("h1") + "/fleet/host.json"
            var credentials = try FleetCredentials(file: file)
            credentials.settings.authorities = try String(contentsOfFile: fleet.servers.directory + "/other.pem", encoding: .utf8)
            let copy = fleet.files.base + "/copy"
            try credentials.write(to: copy)
            let stranger = try fleet.on("h9", "fleet", "join", copy)
            #expect(stranger.status == 1 && stranger.errors.contains("the server's certificate is not trusted"), "\(stranger)")
            (credentials.settings.authorities, credentials.settings.certificate, credentials.settings.key) = (
                try FleetCredentials(file: file).settings.authorities, nil, nil
            )
            try credentials.write(to: copy)
            let nobody = try fleet.on("h9", "fleet", "join", copy)
            #expect(nobody.status == 1 && nobody.errors.contains("the client's certificate is not accepted"), "\(nobody)")
        }
    }

    @Suite struct AnExpiredCertificate {
        @Test("An expired certificate of a server or a client is refused")
        func expired() throws {
            let fleet = try FleetFixture(hosts: ["h1"], .certificates)
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let place = fleet.servers.directory
            let copy = fleet.files.base + "/copy"
            var credentials = try FleetCredentials(file: fleet.store("h1") + "/fleet/host.json")
            credentials.settings.certificate = try String(contentsOfFile: place + "/late-client.pem", encoding: .utf8)
            credentials.settings.key = try String(contentsOfFile: place + "/late-client.key", encoding: .utf8)
            try credentials.write(to: copy)
            let late = try fleet.on("h9", "fleet", "join", copy)
            #expect(late.status == 1 && late.errors.contains("the client's certificate is not accepted"), "\(late)")
            #expect(access(fleet.store("h9") + "/fleet/host.json", F_OK) != 0)

            let member = fleet.servers.members[0]
            fleet.servers.kill(member)
            try fleet.servers.start(member, more: ["--cert-file", place + "/late-server.pem", "--key-file", place + "/late-server.key"])
            try fleet.awaitReading(mount + "/x/file", EACCES)
            #expect(fleet.said("h1").contains("the server's certificate is not trusted"), "\(fleet.said("h1"))")
            let refused = try fleet.administer("revoke", "--fleet", "x")
            #expect(refused.status == 1 && refused.errors.contains("see that it has not expired"), "\(refused)")
            fleet.servers.kill(member)
            try fleet.servers.start(member)
            try fleet.awaitReading(mount + "/x/file", 0)
        }
    }

    @Suite struct AMissingRole {
        @Test("A missing etcd role is reported to administrators and hosts")
        func roles() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            let root = try fleet.rootOfEtcd()
            let file = fleet.files.base + "/second"
            try fleet.administer("fleet", "invite", "second", "--administrator", "--output", file).orThrow()
            let grant = [Programs.grantfs, "grant", "--fleet", try fleet.source("y"), "--view", "v"]
            try fleet.servers.etcdctl("user", "revoke-role", "second", "grantfs-administrator", user: root).orThrow()
            let refused = try Command.run(grant, environment: ["GRANTFS_STORE": fleet.store("second"), "GRANTFS_FLEET": file])
            #expect(refused.status == 1 && refused.errors.contains("the roles of this user in etcd do not allow it"), "\(refused)")
            try fleet.servers.etcdctl("user", "grant-role", "second", "grantfs-administrator", user: root).orThrow()
            try fleet.servers.etcdctl("user", "revoke-role", "grantfs-host-h1", "grantfs-host-h1", user: root).orThrow()
            try fleet.awaitReading(mount + "/x/file", EACCES)
            #expect(fleet.said("h1").contains("the roles of this user in etcd do not allow it"), "\(fleet.said("h1"))")
            try fleet.servers.etcdctl("user", "grant-role", "grantfs-host-h1", "grantfs-host-h1", user: root).orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
        }
    }

    @Suite struct TheFilesOfAFleet {
        @Test("Credential files are private, and a bad token file fails no command")
        func files() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let place = fleet.store("administrator") + "/fleet/administrator.json"
            for file in [place, place + ".token", fleet.store("h1") + "/fleet/host.json", fleet.files.base + "/h1.invitation"] {
                var status = stat()
                #expect(stat(file, &status) == 0 && status.st_mode & 0o777 == 0o600, "\(file)")
            }
            for token in ["root\nnonsense.1\n", "root\nnonsense.999999999\n", "somebody\nnonsense.1\n", "", "root\n\u{1}\n", "a\nb\nc\n"] {
                try token.write(toFile: place + ".token", atomically: false, encoding: .utf8)
                try fleet.administer("list", "--fleet").orThrow()
            }
        }
    }

    @Suite struct ALocalAdministrator {
        @Test("A host's administrator may withdraw fleet grants but not widen them")
        func withdrawing() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x", "--read-only").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            for words in [["set", "x", "--access", "read-write"], ["remove", "x"], ["set", "x", "--expires", "never"]] {
                let output = try Command.run([Programs.grantfs] + words, environment: ["GRANTFS_STORE": fleet.store("h1")])
                #expect(output.status == 1 && output.errors.contains("the fleet has granted it"), "\(output)")
            }
            try fleet.on("h1", "revoke", "x").orThrow()
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            let restored = try fleet.on("h1", "restore", "x")
            #expect(restored.status == 1 && restored.errors.contains("the fleet has granted it"))
            // Other changes of the fleet do not restore it.
            try fleet.administer("set", "--fleet", "x", "--expires", "2h").orThrow()
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
            try fleet.administer("revoke", "--fleet", "x").orThrow()
            try fleet.administer("restore", "--fleet", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
        }

        @Test("A grant of the host keeps its name against a fleet grant")
        func names() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let own = try fleet.source("own")
            try fleet.on("h1", "grant", own, "--view", "v", "--name", "x").orThrow()
            let granted = try fleet.administer("grant", "--fleet", try fleet.source("other"), "--view", "v", "--name", "x")
            #expect(granted.status == 3 && granted.errors.contains("that was made here"), "\(granted)")
            try "only here".write(toFile: own + "/mark", atomically: false, encoding: .utf8)
            #expect(FleetFixture.reading(mount + "/x/mark") == 0)
            try fleet.on("h1", "remove", "x").orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            #expect(FleetFixture.reading(mount + "/x/mark") == ENOENT)
        }
    }
}
