import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// The servers are this machine's: the name that leads to them is `localhost`.
    @Suite(
        "The host list of a run",
        .enabled(if: Machine.hasSandboxes && Machine.offers("python3") && Machine.offers("bash"), "needs bubblewrap, python3 and bash"))
    struct RunNetwork {
        private let fixture: MountFixture
        private let source: String
        private let server: Child
        private let port: String

        /// Answers every request with the request itself.
        private static let echo = """
            import socket, threading
            def serve(c):
                said = b''
                while b'\\r\\n\\r\\n' not in said:
                    more = c.recv(4096)
                    if not more: return c.close()
                    said += more
                c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(said) + said)
                c.close()
            s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(200)
            print(s.getsockname()[1], flush=True)
            while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
            """

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("work")
            server = try Child(["python3", "-c", Self.echo])
            port = try #require(server.line())
        }

        /// `ask REQUEST` sends the proxy that, with this machine's server for PORT, and prints the answer.
        private static let ask = """
            ask() { exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf "${1//PORT/$PORT}" >&3; cat <&3; exec 3>&-; }

            """

        private func run(_ script: String, hosts: String, _ options: String..., fixture other: MountFixture? = nil) throws -> Output {
            let fixture = other ?? fixture
            let source = try other?.source("work") ?? source
            return try fixture.grantfs(
                ["run", "--grant", source, "--env", "PORT=\(port)", "--network-hosts", hosts] + options + [
                    "--", "bash", "-c", Self.ask + script,
                ])
        }

        private static let page = "ask 'GET http://localhost:PORT/page HTTP/1.1\\r\\nHost: evil.net\\r\\n\\r\\n'"
        private static let tunnel =
            "ask 'CONNECT localhost:PORT HTTP/1.1\\r\\nHost: evil.net\\r\\n\\r\\nGET /inside HTTP/1.1\\r\\nHost: own\\r\\n\\r\\n'"

        private func expectReached(_ output: Output) {
            #expect(
                output.text.contains("GET /page HTTP/1.1\r\nHost: localhost:\(port)\r\n"),
                "the host is the one that was asked for: \(output)")
            #expect(
                output.text.contains("200 Connection established") && output.text.contains("GET /inside HTTP/1.1\r\nHost: own"), "\(output)"
            )
            #expect(!output.errors.contains("kept from"), "\(output)")
        }

        @Test("A listed host is reached by HTTP and by CONNECT")
        func reached() throws {
            expectReached(try run("\(Self.page); \(Self.tunnel)", hosts: "localhost:\(port),127.0.0.1:\(port)"))
        }

        @Test("A plain user's run reaches a listed host", .enabled(if: Machine.usersCanMount, "plain users cannot mount here"))
        func plainUser() throws {
            let own = try MountFixture(owner: try #require(Machine.plainUser))
            expectReached(try run("\(Self.page); \(Self.tunnel)", hosts: "localhost:\(port),127.0.0.1:\(port)", fixture: own))
        }

        @Test("A run with a host list has no network but the proxy")
        func nothingElse() throws {
            let script = """
                tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '
                (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null && echo LEAK direct
                env | grep -c '^[a-zA-Z]*_proxy=http://127.0.0.1:\\|^[A-Z]*_PROXY=http://127.0.0.1:'
                ls /proc/self/fd | tr '\\n' ' '
                """
            let output = try run(script, hosts: "localhost:\(port),127.0.0.1:\(port)")
            #expect(output.lines == ["lo", "6", "0 1 2 3 "], "3 is the listing's own: \(output)")
        }

        @Test("An unlisted host is refused and reported in any notation")
        func refused() throws {
            let audit = fixture.base + "/audit"
            let targets = [
                "evil.example:443", "127.0.0.1:1", "[::1]:PORT", "[::ffff:127.0.0.1]:1", "169.254.169.254:80", "localhost:22", "127.1:PORT",
                "2130706433:PORT",
            ]
            let asking = targets.map { "ask 'CONNECT \($0) HTTP/1.1\\r\\n\\r\\n' | head -n 1 | tr -d '\\r'" }.joined(separator: "\n")
            let output = try run(asking, hosts: "localhost:\(port),127.0.0.1:\(port)", "--audit", audit)
            #expect(output.lines.count == targets.count, "\(output)")
            for line in output.lines { #expect(line.hasPrefix("HTTP/1.1 403") || line.hasPrefix("HTTP/1.1 400"), "\(output)") }
            #expect(output.errors.contains("kept from evil.example:443: it is not on the list"), "\(output)")
            let entries = try String(contentsOfFile: audit, encoding: .utf8)
            #expect(entries.contains(#""event":"host-refused""#) && entries.contains(#""host":"169.254.169.254:80""#), "\(entries)")
        }

        @Test("A listed name of the loopback reaches the machine's server", arguments: ["localhost", "127.0.0.1"])
        func loopback(name: String) throws {
            let client = "import urllib.request as u; print(u.urlopen('http://\(name):\(port)/page').read().decode())"
            let output = try run("python3 -c \"\(client)\"", hosts: "\(name):\(port)")
            #expect(output.text.contains("GET /page HTTP/1.1"), "by the proxy, as no_proxy leaves this name out: \(output)")
        }

        @Test("`no_proxy` holds the names of the loopback that the host list lacks")
        func ownLoopback() throws {
            let output = try run("echo $no_proxy", hosts: "127.0.0.1:\(port)")
            #expect(output.lines == ["localhost,::1"], "\(output)")
        }

        @Test("A sandbox without the machine's network gets no socket of AF_VSOCK", arguments: [[], ["--network-hosts", "example.org"]])
        func vsock(options: [String]) throws {
            let script = "import socket\ntry: socket.socket(40, socket.SOCK_STREAM)\nexcept OSError as e: print(e.errno)"
            let output = try fixture.grantfs(["run", "--grant", source] + options + ["--", "python3", "-c", script])
            #expect(output.lines == ["\(EAFNOSUPPORT)"], "\(output)")
        }

        @Test("The proxy forwards one request per connection")
        func oneRequest() throws {
            let script =
                "ask 'GET http://localhost:PORT/first HTTP/1.1\\r\\n\\r\\nGET http://evil.net/second HTTP/1.1\\r\\nHost: evil.net\\r\\n\\r\\n'"
            let output = try run(script, hosts: "localhost:\(port),127.0.0.1:\(port)")
            #expect(output.text.contains("GET /first") && !output.text.contains("second"), "\(output)")
        }

        @Test("The proxy answers a program that sends too much")
        func sendingTooMuch() throws {
            let script = """
                exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}
                printf "GET http://localhost:$PORT/first HTTP/1.1\\r\\n\\r\\n" >&3; sleep 0.4
                for part in 1 2 3; do echo more >&3; sleep 0.1; done; cat <&3
                """
            let output = try run(script, hosts: "localhost:\(port),127.0.0.1:\(port)")
            #expect(output.status == 0 && output.text.contains("GET /first") && !output.text.contains("more"), "\(output)")
        }

        @Test("The proxy queues connections beyond those that it serves at once")
        func many() throws {
            let script = """
                for i in $(seq 100); do exec {held[i]}<>/dev/tcp/127.0.0.1/${http_proxy##*:}; done
                for i in $(seq 100); do exec {held[i]}>&-; done
                for i in $(seq 100); do \(Self.page) & done | grep -c '^GET /page'; wait
                """
            #expect(try run(script, hosts: "localhost:\(port),127.0.0.1:\(port)").lines == ["100"])
        }

        @Test("The proxy has no rights and ends with its run", arguments: [false, true])
        func gone(killed: Bool) throws {
            let program = try Child(
                [Programs.grantfs, "run", "--grant", source, "--network-hosts", "example.org", "--", "sh", "-c", "echo ready; read x"],
                environment: fixture.environment)
            try program.expect("ready")
            let proxy = try #require(Self.proxy(of: program.pid))
            let status = Processes.kernelText("/proc/\(proxy)/status")
            #expect(status.contains("NoNewPrivs:\t1") && status.contains("CapEff:\t0000000000000000"), "\(status)")
            #expect(!status.contains("Uid:\t0"), "\(status)")
            if killed { kill(program.pid, SIGKILL) } else { program.closeInput() }
            #expect(program.wait(within: 30) != nil)
            try fixture.wait(until: "the proxy is gone") { !Processes.isRunning(proxy) }
            try fixture.wait(until: "what was left is cleaned away") { try fixture.list("--all").isEmpty }
        }

        private static func proxy(of starter: pid_t) -> pid_t? {
            let all = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) }
            return all.first { pid in
                let status = Processes.kernelText("/proc/\(pid)/status")
                return status.hasPrefix("Name:\tgrantfs-proxy") && status.contains("PPid:\t\(starter)\n")
            }
        }

        @Test("The host list of the command line overrides that of a profile")
        func profiles() throws {
            let directory = fixture.base + "/config/grantfs/profiles"
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
            for (name, text) in [
                ("list", "network = [\"localhost:\(port)\", \"127.0.0.1:\(port)\"]"), ("all", "network = true"),
                ("bad", "network = [\"*\"]"),
            ] {
                try (text + "\n").write(toFile: directory + "/" + name, atomically: false, encoding: .utf8)
                chmod(directory + "/" + name, 0o644)
            }
            let environment = fixture.environment.merging(["XDG_CONFIG_HOME": fixture.base + "/config"]) { $1 }
            let run = { (options: [String], script: String) in
                try Command.run(
                    [Programs.grantfs, "run", "--grant", source, "--env", "PORT=\(port)"] + options + [
                        "--", "bash", "-c", Self.ask + script,
                    ],
                    environment: environment)
            }
            #expect(try run(["--tool", "list"], Self.page).text.contains("GET /page"))
            let bounded = try run(["--tool", "all", "--network-hosts", "example.org"], "tail -n +3 /proc/net/dev | wc -l; \(Self.page)")
            #expect(bounded.lines.first == "1" && bounded.text.contains("403"), "\(bounded)")
            #expect(try run(["--tool", "bad"], "true").errors.contains("invalid host “*”"))
        }

        @Test("A run with an invalid host list is refused", arguments: ["*", "", "a b", "example.org:0"])
        func wrong(list: String) throws {
            let output = try run("echo ran", hosts: list)
            #expect(output.status == 2 && output.bytes.isEmpty, "\(output)")
        }

        @Test("A run with `--network` and a host list is refused")
        func both() throws {
            let output = try run("echo ran", hosts: "example.org", "--network")
            #expect(output.status == 2 && output.bytes.isEmpty, "\(output)")
        }
    }
}
