import GrantCommandLine
import GrantModel

/// Options that give patterns of names.
package enum RuleOptions {
    /// The options, for the rules of a directory that is described.
    package static func of(_ directory: String) -> [OptionDeclaration] {
        [
            OptionDeclaration("hide", value: "PATTERN", help: "names below \(directory) that do not exist there", isRepeatable: true),
            OptionDeclaration("protect", value: "PATTERN", help: "names that can be read there and not changed", isRepeatable: true),
            OptionDeclaration("only", value: "PATTERN", help: "nothing else is visible there", isRepeatable: true),
        ]
    }

    package static let protectTools = OptionDeclaration(
        "protect-tools", help: "protect there what the host executes later: git hooks and configuration, start files, CI, agent settings")
    package static let toolsNote =
        "--protect-tools protects these names at any depth, and --protect '!NAME' leaves one out: "
        + ToolProtection.patterns.joined().joined(separator: " ")

    package static let note =
        "PATTERN is as in gitignore(5), relative to the granted directory: .env* at any depth, /config below the directory itself, "
        + "build/ for directories, ! takes back. Quote it for the shell. See Rules in grantfs(1)."
}
