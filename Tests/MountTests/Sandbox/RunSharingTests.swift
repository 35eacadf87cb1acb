import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "Resources that a sandbox shares with its starter",
        .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct SharedWithTheStarter {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            try Command.run(["cp", Programs.attacker, source + "/Attacker"]).orThrow()
        }

        private static let hasKeys = access("/proc/keys", F_OK) == 0

        private func running(_ options: String..., command: [String]) -> [String] {
            [Programs.grantfs, "run", "--store", fixture.store, "--grant", source] + options + ["--"] + command
        }

        @Test("A sandbox cannot read or list the keys of its starter", .enabled(if: hasKeys, "the kernel has no keys"))
        func keys() throws {
            let starting = [Programs.attacker, "keys", "start", "grantfs-test-secret", "open sesame"]
            let looking = ["/keys/docs/Attacker", "keys", "look", "grantfs-test-secret"]
            // What the attack finds where nothing keeps it away.
            let outside = try Command.run(starting + [Programs.attacker] + looking.dropFirst()).orThrow()
            #expect(outside.lines.contains("read: open sesame") && outside.lines.contains("listed: yes"), "\(outside)")
            let output = try Command.run(
                starting + running("--at", "/keys", "--env", "ATTACKER_KEY", command: looking), within: 30
            ).orThrow()
            let refused = ["read", "search", "request", "user's", "add"].map { $0 + ": Operation not permitted" }
            #expect(output.lines == refused + ["listed: no"], "\(output)")
        }

        @Test("A sandbox cannot push input into the terminal of its starter")
        func terminal() throws {
            let starting = [Programs.attacker, "terminal", "start"]
            let output = try Command.run(
                starting + running(command: ["/grants/docs/Attacker", "terminal", "push"]), within: 30
            ).orThrow()
            #expect(output.lines.dropFirst() == ["push", "long", "paste"].map { $0 + ": Operation not permitted" }[...], "\(output)")
        }

        @Test("A sandbox cannot trace its first process to outlive its end")
        func firstProcess() throws {
            let output = try Command.run(running(command: ["/grants/docs/Attacker", "trace-init"]), within: 20)
            #expect(output.lines == ["attach", "wide", "seize"].map { $0 + ": Operation not permitted" }, "\(output)")
            #expect(output.status == 7)
        }

        @Test("A sandbox shares no memory, queue or abstract socket with its starter", arguments: [false, true])
        func withoutFiles(network: Bool) throws {
            let name = "/grantfs-test-\(getpid())-\(network)"
            let key = "\(0x6772_0000 + Int(getpid() & 0x7FFF) * 2 + (network ? 1 : 0))"
            let server = try Child([Programs.attacker, "shared", "serve", name, key])
            let made = try #require(server.line())
            try server.expect("ready")
            let outside = try Command.run([Programs.attacker, "shared", "look", name, key]).orThrow()
            #expect(outside.lines.contains("socket: yes") && outside.lines.contains("own socket: yes"), "\(made) \(outside)")
            let looking = ["/grants/docs/Attacker", "shared", "look", name, key]
            let command = network ? running("--network", command: looking) : running(command: looking)
            let output = try Command.run(command, within: 30).orThrow()
            // Before Linux 6.12 the network's namespace is all there is.
            let isKept = !network || Self.hasScopes
            #expect(
                output.lines == ["socket: \(isKept ? "no" : "yes")", "queue: no", "file: no", "memory: no", "own socket: yes"], "\(output)")
            server.closeInput()
            #expect(server.wait(within: 30) == 0)
        }

        private static let hasScopes: Bool = {
            let version = (try? String(contentsOfFile: "/proc/sys/kernel/osrelease", encoding: .utf8)) ?? ""
            let numbers = version.split(whereSeparator: { !$0.isNumber }).prefix(2).compactMap { Int($0) }
            return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 12)
        }()
    }
}
