import Foundation
import Testing

import GrantDeclarations
@testable import grantfs

@Suite struct CompletionTests {
    private func words(_ line: [String]) -> [String]? {
        let answer = Completion(program: CommandLineProgram.declaration).answer(to: line) { kind, view, _ in
            let names: [ValueKind: [String]] = [
                .grant: view == "web" ? ["site"] : ["docs", "site", "my files"], .view: ["default", "web"],
            ]
            return (names[kind] ?? []).map { Completion.Candidate(word: $0, about: "") }
        }
        guard case .words(let candidates) = answer else { return nil }
        return candidates.map(\.word)
    }

    @Test(
        "Completion offers the matching words",
        arguments: [
            (["unm"], ["unmount"]), (["revoke", ""], ["docs", "site", "my files"]), (["revoke", "docs", "s"], ["site"]),
            (["revoke", "--view", ""], ["default", "web"]), (["revoke", "--view", "web", ""], ["site"]),
            (["revoke", "--view=web", ""], ["site"]), (["revoke", "--view=w"], ["--view=web"]), (["--store", "/s", "unm"], ["unmount"]),
            (["revoke", "--js"], ["--json"]), (["revoke", "--json", "--js"], []), (["revoke", "--", "--js"], []),
            (["set", "docs", "--access", "read-o"], ["read-only"]), (["mount", "-o", "ro,cache=n"], ["ro,cache=none"]),
            (["mount", "-o", "ro,r"], ["ro,rw", "ro,recover"]), (["mount", "web", "/mnt", ""], []), (["grant", "--name", ""], []),
            (["completion", "f"], ["fish"]), (["no-such-command", ""], nil), (["list", "d"], ["docs"]),
            (["repair", "--conf"], ["--confirm"]),
            (["fleet", "in"], ["init", "invite"]), (["policy", ""], ["check", "explain"]), (["fleet", "invite", "--la"], ["--label"]),
            (["fleet", "invite", "--le"], []), (["fleet", "hosts", "--"], ["--json", "--store", "--help", "--version"]),
            (["fleet", "--"], ["--store", "--help", "--version"]), (["fleet", "--lease", "5s", "in"], ["init", "invite"]),
            (["policy", "explain", "--access", "read-o"], ["read-only"]), (["fleet", "hosts", ""], []), (["wat"], []), (["resol"], []),
        ] as [([String], [String]?)])
    func whatMayFollowIsOffered(_ line: [String], _ expected: [String]?) {
        #expect(words(line) == expected ?? words([""]))
    }

    @Test("Completion offers no hidden command or option")
    func hiddenCommandsAndOptionsAreNotOffered() throws {
        let commands = try #require(words([""]))
        #expect(commands.contains("grant") && !commands.contains("look") && !commands.contains("complete"))
        #expect(CommandLineProgram.declaration.formerCommands.keys.allSatisfy { !commands.contains($0) })
        let options = try #require(words(["mount", "--"]))
        #expect(options.contains("--foreground") && !options.contains("--ready-fd"))
    }

    @Test(
        "Completion leaves directories to the shell",
        arguments: [
            (["grant", ""], Completion.Answer.directories), (["mount", "web", ""], .directories),
            (["repair", "docs", "--confirm", ""], .files), (["fleet", "join", ""], .files),
        ])
    func whatTheShellKnowsIsLeftToIt(_ line: [String], _ expected: Completion.Answer) {
        #expect(Completion(program: CommandLineProgram.declaration).answer(to: line) { _, _, _ in [] } == expected)
    }

    /// If one fails, `make manual` regenerates the page.
    @Test("The manual page has the declared synopsis and options")
    func theManualSaysWhatIsDeclared() throws {
        let page = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../docs/man/grantfs.1").standardized
        let text = try String(contentsOf: page, encoding: .utf8)
        #expect(text.contains(ManualText.synopsis(of: CommandLineProgram.declaration)))
        #expect(text.contains(ManualText.options(of: CommandLineProgram.declaration)))
    }
}
