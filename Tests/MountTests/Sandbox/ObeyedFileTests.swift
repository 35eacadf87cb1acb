import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Grants for writing to files that grantfs itself obeys.
    @Suite struct ObeyedFiles {
        private let fixture: MountFixture
        private let home: String

        init() throws {
            fixture = try MountFixture()
            home = try fixture.directory("home")
            _ = try fixture.directory("home/.config")
        }

        private func grantfs(_ words: String..., variables: [String: String] = [:]) throws -> Output {
            let environment = fixture.environment.merging(["HOME": home, "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": ""]) { $1 }
            return try Command.run([Programs.grantfs] + words, environment: environment.merging(variables) { $1 })
        }

        private func expectRefusal(_ output: Output) {
            #expect(output.status == 1 && output.errors.contains("which grantfs obeys"), "\(output)")
        }

        @Test(
            "A directory for files that grantfs obeys is granted only for reading",
            arguments: [
                "home", "home/.config", "home/.config/grantfs", "home/.config/grantfs/profiles", "home/.config/systemd",
                "home/.config/systemd/user", "home/.config/systemd/user/grantfs@work.service.d",
            ])
        func directories(name: String) throws {
            let directory = try fixture.directory(name)
            expectRefusal(try grantfs("grant", directory))
            #expect(try fixture.list().isEmpty)
            try grantfs("grant", directory, "--read-only").orThrow()
            let granted = URL(fileURLWithPath: directory).lastPathComponent
            expectRefusal(try grantfs("set", granted, "--access", "read-write"))
            #expect(try fixture.list().map(\.access) == ["read-only"])
        }

        @Test("A file that grantfs obeys is not granted for writing")
        func files() throws {
            let dotfiles = try fixture.directory("dotfiles")
            _ = try fixture.directory("home/.config/grantfs")
            for name in ["agents.toml", "work.grants"] {
                try Data().write(to: URL(fileURLWithPath: dotfiles + "/" + name))
            }
            try Data().write(to: URL(fileURLWithPath: home + "/.config/grantfs/own.toml"))
            expectRefusal(try grantfs("grant", home + "/.config/grantfs/own.toml"))
            try grantfs("grant", dotfiles, "--name", "before").orThrow()
            let link = home + "/.config/grantfs/work.grants"
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: dotfiles + "/work.grants")
            expectRefusal(try grantfs("grant", dotfiles))
            // Withdrawn, it does not come back.
            try grantfs("revoke", "before").orThrow()
            expectRefusal(try grantfs("restore", "before"))
        }

        @Test("Other directories beside what grantfs obeys are granted for writing")
        func others() throws {
            for name in ["home/.config/editor", "home/.local/share/editor", "home/work"] {
                try grantfs("grant", try fixture.directory(name), "--view", name.replacingOccurrences(of: "/", with: "-")).orThrow()
            }
        }

        @Test(
            "`run` refuses to grant a configuration directory and leaves no profile there",
            .enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
        func run() throws {
            let output = try grantfs(
                "run", "--grant", home + "/.config", "--", "sh", "-c",
                "mkdir -p ~/.config/grantfs/profiles; touch ~/.config/grantfs/profiles/x")
            expectRefusal(output)
            #expect(!FileManager.default.fileExists(atPath: home + "/.config/grantfs"))
        }

        @Test("The policy of an agent is not granted to it for writing")
        func policyOfAnAgent() throws {
            let source = try fixture.source("work")
            let policy = source + "/policy.toml"
            try "[[allow]]\npath = \"\(source)\"\naccess = \"read-write\"\n".write(toFile: policy, atomically: false, encoding: .utf8)
            let program = try Child([Programs.grantfs, "mcp", "--policy", policy], environment: fixture.environment)
            program.send(
                #"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"request_directory","arguments":{"path":"\#(source)","access":"read-write"}}}"#
            )
            let answer = try #require(program.line())
            #expect(answer.contains("which grantfs obeys") && answer.contains(#""isError":true"#), "\(answer)")
        }
    }
}
