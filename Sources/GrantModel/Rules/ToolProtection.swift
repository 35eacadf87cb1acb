/// What `run --protect-tools` protects: files that programs on the host execute, or take commands from, without being asked.
///
/// docs/guides/sandbox.md has the reason for each line.
package enum ToolProtection {
    package static let patterns: [[String]] = [
        // git: a file .git names another repository, and commondir another configuration.
        [
            ".git", "!.git/", "**/.git/config", "**/.git/config.worktree", "**/.git/commondir", "**/.git/hooks",
            "**/.git/modules/**/config", "**/.git/modules/**/config.worktree", "**/.git/modules/**/commondir", "**/.git/modules/**/hooks",
            "**/.git/worktrees/*/commondir", "**/.git/worktrees/*/config.worktree", ".gitconfig", "**/.config/git",
        ],
        [".husky/", ".githooks/", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml"],
        [
            ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile",
            ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", "**/.config/fish", ".inputrc", ".envrc",
        ],
        [
            ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", "**/.config/autostart", "**/.config/systemd", "**/.config/environment.d",
            ".ssh/", ".tmux.conf",
        ],
        [
            ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".nvim.lua", ".vim/", "**/.config/nvim", ".emacs", ".emacs.d/", ".dir-locals.el",
            ".vscode/", "*.code-workspace", ".idea/", ".zed/", "*.sublime-project", ".devcontainer/", ".devcontainer.json",
        ],
        [
            "**/.github/workflows", "**/.github/actions", "**/.gitea/workflows", "**/.forgejo/workflows", ".gitlab-ci.yml", ".circleci/",
            ".travis.yml", ".drone.yml", ".woodpecker/", ".woodpecker.yml", ".buildkite/", "azure-pipelines.yml",
            "bitbucket-pipelines.yml", "Jenkinsfile",
        ],
        [
            ".claude/", ".claude.json", ".mcp.json", ".codex/", ".gemini/", ".cursor/", ".windsurf/", ".continue/", ".opencode/",
            ".aider.conf.yml",
        ],
        [".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "**/.cargo/config", "**/.cargo/config.toml", "mise.toml", ".mise.toml"],
    ]

    /// Returns the rules with the built-in patterns before those of `protect`.
    ///
    /// A pattern is left out if `protect` has it, with or without `!`, because the user's own decides, and if others hide it.
    package static func added(to rules: GrantRules) throws(GrantError) -> GrantRules {
        try GrantRules(hide: rules.hide, protect: try patterns(beside: rules) + rules.protect, only: rules.only)
    }

    private static func patterns(beside rules: GrantRules) throws(GrantError) -> [RulePattern] {
        let decided = rules.protect + rules.hide.filter { !$0.isNegated } + rules.only.filter(\.isNegated)
        let own = Set(decided.map { bare($0.text) })
        var protect: [RulePattern] = []
        for pattern in patterns.joined() where !own.contains(bare(Array(pattern.utf8))) {
            protect.append(try RulePattern(Array(pattern.utf8)))
        }
        return protect
    }

    /// Returns the rules of a git repository that is granted by itself: the patterns for `.git`, and the links from it to worktrees.
    package static func ofRepository() throws(GrantError) -> GrantRules {
        let start = "**/.git/"
        let patterns = patterns[0].filter { $0.hasPrefix(start) }.map { "/" + $0.dropFirst(start.count) } + ["/worktrees/*/gitdir"]
        return try GrantRules(protect: try patterns.map { (text) throws(GrantError) in try RulePattern(Array(text.utf8)) })
    }

    /// Throws `.permission` for a directory that is protected itself, or has protected files by its place: patterns are relative to
    /// a granted directory, so they would not match in it.
    ///
    /// - Parameters:
    ///   - path: The directory's, absolute.
    ///   - rules: The rules without the built-in patterns.
    package static func requireOutside(_ path: [UInt8], beside rules: GrantRules) throws(GrantError) {
        let program = RuleProgram(try GrantRules(protect: try patterns(beside: rules)))
        let state = program.judge(path: path.split(separator: UInt8(ascii: "/")), isDirectory: true).state
        if !state.isProtected, state.positions.isEmpty { return }
        throw GrantError(
            .permission, "“\(VisibleText.of(path))” is not granted for writing with --protect-tools",
            cause: "the host executes files in it, or takes commands from them",
            advice: "grant it read-only, or a directory above it")
    }

    private static func bare(_ text: [UInt8]) -> [UInt8] { text.first == UInt8(ascii: "!") ? Array(text.dropFirst()) : text }
}
