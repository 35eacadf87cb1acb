import Foundation
import TestSupport
import Testing

/// The scripts, in the shells themselves, with a store that has grants.
@Suite struct ShellCompletionTests {
    private struct Grants {
        let fixture: MountFixture
        let path: String
        init() throws {
            fixture = try MountFixture()
            try fixture.grant(try fixture.source("docs"))
            try fixture.grant(try fixture.source("my files"), view: "web")
            path = URL(fileURLWithPath: Programs.grantfs).deletingLastPathComponent().path
        }

        func lines(_ shell: [String], _ script: String, _ words: [String]) throws -> [String] {
            let environment = ["GRANTFS_STORE": fixture.store, "PATH": "\(path):/usr/bin:/bin", "HOME": fixture.base]
            return try Command.run(shell + [script] + (shell[0] == "bash" ? ["bash"] : []) + words, environment: environment).orThrow()
                .lines
        }
    }

    /// The words as readline hands them over: it parts them at `=` as well.
    private static let bash = #"""
        set -u
        compopt() { :; }
        source <(grantfs completion bash)
        COMP_WORDS=(grantfs "$@") COMP_CWORD=$#
        _grantfs
        printf '%s\n' "${COMPREPLY[@]}"
        """#

    @Test(
        "Completion in bash offers commands, grants, views and values with quotes",
        arguments: [
            (["rel"], ["release"]), (["revoke", "d"], ["docs"]), (["revoke", "m"], [#"my\ files"#]),
            (["revoke", #"my\ f"#], [#"my\ files"#]),
            (["revoke", "'my f"], ["'my files'"]), (["revoke", "--view", "w"], ["web"]), (["revoke", "--view", "=", "w"], ["web"]),
            (["revoke", "--view", "="], ["default", "web"]), (["mount", "-o", "ro,cache", "=", "e"], ["exclusive"]),
            (["revoke", "--tim"], ["--timeout"]), (["fleet", "inv"], ["invite"]), (["fleet", "invite", "--out"], ["--output"]),
        ])
    func bash(_ words: [String], _ expected: [String]) throws {
        #expect(try Grants().lines(["bash", "-c"], Self.bash, ["bash"] + words) == expected)
    }

    private static let fish = #"""
        grantfs completion fish | source
        complete -C "grantfs $argv[1]"
        """#

    @Test(
        "Completion in fish offers candidates with a description", .enabled(if: Machine.offers("fish"), "fish is not installed"),
        arguments: [
            ("rel", ["release"]), ("revoke d", ["docs"]), ("revoke --view=w", ["--view=web"]), ("set docs --access read-o", ["read-only"]),
            ("policy exp", ["explain"]), ("policy explain --us", ["--user"]),
        ])
    func fish(_ line: String, _ expected: [String]) throws {
        let offered = try Grants().lines(["fish", "--no-config", "-c"], Self.fish, [line])
        #expect(offered.map { $0.split(separator: "\t")[0].description } == expected)
        if line == "revoke d" { #expect(offered.first?.contains("/source/docs") == true) }
    }

    /// Completion in zsh needs a line editor. This test inspects the words passed to it.
    private static let zsh = #"""
        compdef() { :; }
        compadd() {
            while [[ $1 != -a ]]; do shift; [[ $1 == -- ]] && return; done
            print -l -- "${(@P)3}"
        }
        source <(grantfs completion zsh)
        words=(grantfs "$@") CURRENT=$(($# + 1))
        _grantfs
        """#

    @Test(
        "Completion in zsh offers commands, grants and views", .enabled(if: Machine.offers("zsh"), "zsh is not installed"),
        arguments: [
            (["rel"], ["release"]), (["revoke", "d"], ["docs"]), (["revoke", #"my\ f"#], ["my files"]),
            (["revoke", "--view=w"], ["--view=web"]), (["fleet", "inv"], ["invite"]), (["fleet", "invite", "--out"], ["--output"]),
        ])
    func zsh(_ words: [String], _ expected: [String]) throws {
        #expect(try Grants().lines(["zsh", "-f", "-c"], Self.zsh, ["zsh"] + words) == expected)
    }
}
