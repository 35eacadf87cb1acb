import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct AConsoleWithTLS {
        @Test("The console admits only clients with a certificate of its authority")
        func certificates() throws {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "20s", .certificates)
            let place = fleet.servers.directory
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            let tls = ["--certificate", place + "/server.pem", "--key", place + "/server.key"]
            let console = try ConsoleFixture(fleet, tls + ["--client-ca", place + "/ca.pem"])
            #expect(console.url.hasPrefix("https://127.0.0.1:") && console.token == nil)
            let trusted = ["--cacert", place + "/ca.pem"]
            for (who, words) in [
                ("nobody", [String]()), ("a stranger", ["--cert", place + "/other.pem", "--key", place + "/other.key"]),
                ("who was known", ["--cert", place + "/late-client.pem", "--key", place + "/late-client.key"]),
            ] {
                console.options = trusted + words
                for path in ["/", "/console.js", "/api/state"] {
                    #expect(try [0, 403].contains(console.ask(path).status), "\(who) at \(path)")
                }
                let login = try console.ask("/api/login", ConsoleFixture.post("{\"token\":\"\"}", console.origin))
                #expect([0, 403].contains(login.status), "\(who): \(login)")
            }
            console.options = trusted + ["--cert", place + "/named.pem", "--key", place + "/named.key"]
            #expect(try console.ask("/").status == 200)
            let key = try console.logIn("")
            let cookie =
                try console.ask("/api/login", ConsoleFixture.post("{\"token\":\"\"}", console.origin)).headers["set-cookie"]?.first ?? ""
            #expect(cookie.hasPrefix("__Host-grantfs-console") && cookie.contains("; Secure"), "\(cookie)")
            let state = try console.awaitState(key, "seen") { $0.grant(id)?.confirmed == 1 }
            #expect(try console.change("revoke", id, revision: try #require(state.grant(id)).revision, key: key).status == 202)
            _ = try console.awaitState(key, "over") { $0.changes.last?.over == true }
            #expect(try fleet.administer("log", "--fleet", "--json").orThrow().text.contains("grantfs fleet console, for CN=named"))
            // A session is worth nothing to another one.
            console.options = trusted + ["--cert", place + "/client.pem", "--key", place + "/client.key"]
            #expect(try console.ask("/api/state", console.keyed(key)).status == 401)
            console.options = trusted + ["--tls-max", "1.1"]
            #expect(try console.ask("/").status == 0)
            console.options = []
            #expect(try console.ask("/").status == 0, "curl does not know the authority")
            #expect(try console.ask("http://127.0.0.1:\(console.port)/").status != 200)

            // If both are required, a client needs both.
            let file = fleet.files.base + "/token"
            let token = String(repeating: "k3", count: 20)
            try (token + "\n").write(toFile: file, atomically: false, encoding: .utf8)
            chmod(file, 0o600)
            let strict = try ConsoleFixture(fleet, tls + ["--client-ca", place + "/ca.pem", "--token-file", file])
            #expect(strict.token == nil, "what is in a file is not printed")
            strict.options = trusted + ["--cert", place + "/named.pem", "--key", place + "/named.key"]
            #expect(try strict.ask("/api/login", ConsoleFixture.post("{\"token\":\"\"}", strict.origin)).status == 403)
            #expect(try strict.ask("/api/state", strict.keyed(try strict.logIn(token))).status == 200)
            strict.options = trusted
            #expect(try strict.ask("/api/login", ConsoleFixture.post("{\"token\":\"\(token)\"}", strict.origin)).status == 403)
        }
    }

    @Suite(.enabled(if: Machine.offers("curl"), "\(Machine.needs("curl"))"))
    struct ACertificateWithoutAName {
        @Test("The console refuses a certificate with an empty or overlong name")
        func subjects() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s", .certificates)
            let place = fleet.servers.directory
            let long = (0..<12).map { "/OU=\(String(repeating: "x", count: 60))\($0)" }.joined()
            try Command.shell(
                """
                cd "$1"
                for name in bare long; do
                    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$(case $name in bare) echo / ;; *) echo "$2" ;; esac)" -keyout $name.key -out $name.csr
                    printf 'extendedKeyUsage=clientAuth\n' >$name.ext
                    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $name.ext -out $name.pem
                done
                """, place, long
            ).orThrow()
            let console = try ConsoleFixture(
                fleet, ["--certificate", place + "/server.pem", "--key", place + "/server.key", "--client-ca", place + "/ca.pem"])
            for (name, status) in [("bare", 403), ("long", 403), ("named", 200)] {
                console.options = ["--cacert", place + "/ca.pem", "--cert", "\(place)/\(name).pem", "--key", "\(place)/\(name).key"]
                let login = try console.ask("/api/login", ConsoleFixture.post("{\"token\":\"\"}", console.origin))
                #expect(login.status == status, "\(name): \(login)")
                #expect(try console.ask("/").status == status, "\(name)")
            }
        }
    }

    @Suite struct ASettingOfTheConsole {
        @Test(
            "The console refuses settings that point to the key of another user",
            .enabled(if: geteuid() == 0, "needs root"))
        func othersKey() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s", .certificates)
            let place = fleet.servers.directory
            for owner in [UInt32(0), 65_534] {
                #expect(chown(place + "/server.key", owner, owner) == 0 && chmod(place + "/server.key", 0o600) == 0)
                for words in [
                    ["console", "--listen", "127.0.0.1:-", "--certificate", place + "/server.pem"],
                    ["invite", "a/b", "--cert", place + "/client.pem"],
                    ["init", "--endpoints", "https://127.0.0.1:1", "--cert", place + "/named.pem"],
                ] {
                    // With a correct key, the other error is reported and the console does not
                    // start.
                    let output = try Command.run(
                        [Programs.grantfs, "fleet"] + words.map { $0 == "127.0.0.1:-" ? "127.0.0.1:0" : $0 }
                            + ["--key", place + "/server.key"] + (words[0] == "console" ? ["--client-ca", "/nowhere"] : []),
                        environment: ["GRANTFS_STORE": fleet.store("administrator")], within: 30)
                    let said =
                        output.errors.contains("it belongs to another user (65534)")
                        && output.errors.contains("chown it to 0, and chmod 600")
                    #expect(output.status != 0 && said == (owner != 0), "\(words): \(output)")
                }
            }
        }

        @Test("Unsafe or invalid settings of the console are refused before it serves")
        func refused() throws {
            let fleet = try FleetFixture(hosts: [], lease: "20s", .certificates)
            let place = fleet.servers.directory
            let file = { (name: String, text: String, mode: mode_t) throws -> String in
                let path = fleet.files.base + "/" + name
                try text.write(toFile: path, atomically: false, encoding: .utf8)
                chmod(path, mode)
                return path
            }
            let token = String(repeating: "k3", count: 20)
            let tls = ["--certificate", place + "/server.pem", "--key", place + "/server.key"]
            let (taken, port) = try EtcdServers.listening(backlog: 1)
            defer { close(taken) }
            let cases: [([String], Int32, String)] = [
                (["--listen", "0.0.0.0:0"], 2, "without TLS others could listen"),
                (["--listen", "0.0.0.0:0", "--name", "x"], 2, "without TLS others could listen"),
                (["--listen", "0.0.0.0:0"] + tls, 2, "the name that browsers use"),
                (["--listen", "example.org:1"], 1, "not a numeric address"),
                (["--listen", "127.0.0.1"], 2, "for --listen"),
                (["--listen", "127.0.0.1:99999"], 2, "for --listen"),
                (["--listen", "::1:5"], 2, "for --listen"), (["--listen", "127.0.0.1:\(port)"], 1, "Address already in use"),
                (["--certificate", place + "/server.pem"], 2, "go together"), (["--client-ca", place + "/ca.pem"], 2, "needs TLS"),
                (["--token-file", try file("open", token, 0o644)], 1, "others may read it"),
                (["--token-file", try file("short", "short", 0o600)], 2, "no token that is good enough"),
                (["--token-file", try file("spaces", "a b " + token, 0o600)], 2, "no token that is good enough"),
                (["--token-file", fleet.files.base + "/missing"], 1, "cannot be read"),
                (["--certificate", place + "/server.pem", "--key", try file("key", "x", 0o644)], 1, "every user of this machine may read"),
                (
                    ["--certificate", place + "/server.pem", "--key", try file("groups", "x", 0o640)], 1,
                    geteuid() == 0 ? "nothing can be served" : "may read or change it"
                ),
                (["--certificate", place + "/server.pem", "--key", try file("written", "x", 0o620)], 1, "chmod 600 it"),
                (["--certificate", place + "/server.pem", "--key", try file("nokey", "x", 0o600)], 1, "nothing can be served"),
                (["word"], 2, "one word too many"),
            ]
            for (words, status, text) in cases {
                let output = try Command.run(
                    [Programs.grantfs, "fleet", "console"] + (words.contains("--listen") ? [] : ["--listen", "127.0.0.1:0"]) + words,
                    environment: ["GRANTFS_STORE": fleet.store("administrator")], within: 30)
                #expect(output.status == status && output.errors.contains(text) && output.text.isEmpty, "\(words): \(output)")
            }
            let nowhere = try Command.run(
                [Programs.grantfs, "fleet", "console"], environment: ["GRANTFS_STORE": fleet.store("nowhere")], within: 30)
            #expect(nowhere.status == 1 && nowhere.errors.contains("no fleet is administered from here"), "\(nowhere)")
        }
    }
}
