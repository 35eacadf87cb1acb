import GrantCommandLine

extension CommandDeclaration {
    package static let run = CommandDeclaration(
        "run", "Runs a program in a sandbox that shows it a view, and no other files of any user.",
        operands: [OperandDeclaration("COMMAND", isRepeatable: true, isCommand: true)],
        options: [
            OptionDeclaration("view", value: "V", help: "the view (default: “default”)"),
            OptionDeclaration(
                "grant", value: "PATH[:ro]",
                help:
                    "a view for this program alone, of this directory or file, at its own path too, :ro to read",
                isRepeatable: true),
            OptionDeclaration(
                "offer", value: "DIR[:ro]",
                help: "a directory of which the program sees only the name, until it uses it and a person allows that", isRepeatable: true),
            OptionDeclaration(
                "ask", value: "HOW", help: "where the person is asked about offered directories (default with --offer: terminal)",
                choices: ["terminal", "desktop"]),
            OptionDeclaration("at", value: "PATH", help: "where the program finds the view, and there alone (default: /grants)"),
            OptionDeclaration(
                "ro-bind", value: "PATH", help: "a directory or file to read, at its own path, which cannot be revoked",
                isRepeatable: true),
            OptionDeclaration(
                "tool", aliases: ["profile"], value: "PROFILE",
                help: "what a tool needs: cargo, go, node, python, git, or a profile of your own", isRepeatable: true),
            OptionDeclaration(
                "config", value: "FILE",
                help: "the settings of Anthropic's sandbox runtime (JSON), or Codex' permission profiles (TOML)"),
            OptionDeclaration("config-profile", value: "NAME", help: "the profile of Codex, instead of the file's default_permissions"),
            OptionDeclaration(
                "audit", value: "FILE", help: "leave there what it has opened and changed through the grants, as JSON lines"),
            OptionDeclaration(
                "learn",
                help: "record the names below your home that it looks up outside of its grants, for grantfs why and grantfs profile"),
            OptionDeclaration(
                "snapshot", help: "copy first what it may write to: grantfs diff shows what it has changed, grantfs undo puts it back"),
            OptionDeclaration("review", help: "the same, and ask at the end: keep it, put it back, or leave it for later"),
            OptionDeclaration("undo", help: "the same, and put everything back at the end"),
            OptionDeclaration(
                "snapshot-limit", value: "SIZE", help: "how much may be copied where data cannot be shared, such as 500M (default: 4G)"),
        ] + RuleOptions.of("each directory of --grant") + [
            RuleOptions.protectTools,
            CommonOptions.readOnly("every --grant is read-only, as with :ro"), CommonOptions.access,
            OptionDeclaration(
                "worktree", help: "grant the repositories of git worktrees and submodules too, with their hooks and configuration protected"
            ),
            OptionDeclaration("network", help: "leave it the network"),
            OptionDeclaration(
                "network-hosts", value: "HOST,…",
                help: "let it reach these hosts by a proxy and nothing else: example.org, *.pypi.org:443, !files.pypi.org",
                isRepeatable: true),
            OptionDeclaration("env", value: "NAME[=VALUE]", help: "a variable for it, the caller's own without =VALUE", isRepeatable: true),
        ],
        notes: [
            "The program has the system's /usr and /etc to read, a /tmp and a home directory of its own that are gone afterwards, its own processes, and no "
                + "capability. The exit status is the program's. 1 and 2 may also come from grantfs.",
            "A directory of --grant is at /grants/NAME and at its own path, unless --at names the view's place. So is "
                + "a file. If it is writable, its directory shows it alone, with files that the program makes beside "
                + "it, and /grants/NAME is that directory.",
            RuleOptions.note + " A file of --grant has no rules.",
            RuleOptions.toolsNote,
            "The first use of an offered directory is a question: once (for the process that uses it), for this session, for 30 minutes, to read "
                + "only, or never. The program waits meanwhile, for five minutes at most. grantfs set NAME --access and revoke answer "
                + "as well. With --ask and a mounted --view, the directories of grantfs grant --offered are asked about.",
            "A mounted view is at its mountpoint as well, unless --at names its place.",
            "With --grant the view and its grants exist as long as the program does. list shows them, and revoke "
                + "withdraws them meanwhile.",
            "Needs bubblewrap.",
        ], program: .sandbox)

    package static let bwrap = CommandDeclaration(
        "bwrap", "Runs bubblewrap, with the files that it binds as grants that can be revoked.",
        operands: [OperandDeclaration("ARGUMENT", isOptional: true, isRepeatable: true)],
        notes: [
            "ARGUMENTs are bubblewrap's, see bwrap(1). Each --bind, --ro-bind, --dev-bind and their like of a directory or file in the home, "
                + "in /tmp, or outside of the system's directories is a grant, in a view that exists as long as bubblewrap does. The rest is passed on "
                + "as it is. /, /usr, /etc and other directories of the system are bound as they are, and cannot be revoked.",
            "list shows the grants and the command, revoke and set change them meanwhile. A directory that grant --view adds is "
                + "in the sandbox where it is in the view's mount.",
            "share/grantfs/bin/bwrap does the same for programs that start bwrap: put that directory first in PATH. So does a link to "
                + "grantfs of the name bwrap, except for programs that resolve it. With --no-grants as the first ARGUMENT bubblewrap "
                + "does all by itself. It does so too in a sandbox of this command.",
            "The store is not shown to the program, and a directory that contains it can only be bound read-only. Overlays of "
                + "such files are refused.",
            "Needs bubblewrap.",
        ], takesOthersWords: true, program: .sandbox)

    package static let diff = CommandDeclaration(
        "diff", "Shows what a program has changed that grantfs run started with --snapshot.",
        operands: [OperandDeclaration("RUN", isOptional: true, isRepeatable: true)],
        options: [
            OptionDeclaration("patch", short: "p", help: "the lines that differ, as diff -u shows them"),
            OptionDeclaration("list", help: "the runs of which there is a snapshot"),
            OptionDeclaration("forget", help: "remove the snapshots of RUN, but no change of the program"),
            OptionDeclaration("older", value: "TIME", help: "with --forget: of all runs that began so long ago, such as 7d"),
            CommonOptions.json,
        ],
        notes: [
            "RUN is the id that grantfs run has printed, or its beginning (default: the newest).",
            "It compares the directories before the program began with the present ones: changes of others are "
                + "shown as well.",
            "A for added, D for removed, M for changed. Unreadable items are named as unread, and the exit status "
                + "is 3 then.",
        ], program: .sandbox)

    package static let undo = CommandDeclaration(
        "undo", "Puts back what a program has changed that grantfs run started with --snapshot.",
        operands: [OperandDeclaration("RUN")],
        options: [
            OptionDeclaration("force", help: "also undo changes that other programs made since the program ended"),
            OptionDeclaration("dry-run", short: "n", help: "print the changes that would be undone, and change nothing"),
            CommonOptions.json,
        ],
        notes: [
            "RUN is the id that grantfs run has printed, or its beginning. grantfs diff --list names all.",
            "Items that were changed since the program ended, or cannot be put back, are kept and named. The exit "
                + "status is 3 then. Removed items are kept in the snapshot until that is forgotten (grantfs diff "
                + "--forget).",
        ], program: .sandbox)

    package static let profile = CommandDeclaration(
        "profile", "Proposes a profile with what a program of grantfs run wanted and did not get.",
        operands: [OperandDeclaration("RUN", isOptional: true)],
        notes: [
            "RUN is the view that grantfs run has printed, run-…, or its beginning, with or without run- (default: the newest run). Save the profile "
                + "as ~/.config/grantfs/profiles/NAME, read it, and use it with grantfs run --tool NAME. Each line has the number of uses.",
            "By itself the profile grants toolchains and fonts for reading, offered directories that a person has allowed for the session, and "
                + "hosts. Other places are proposed in comments: remove the “# ” of the lines that the program may have. Keys, "
                + "credentials, browsers, the home itself, and for writing also files that the host executes, are named with the reason, "
                + "and not proposed. Names are recorded by grantfs run --learn, hosts by --network-hosts.",
            "Exit status: 1 if nothing can be proposed.",
        ], program: .sandbox)

    package static let mcp = CommandDeclaration(
        "mcp", "Lets a program ask a person for directories, by the Model Context Protocol on stdin and stdout.",
        options: [
            OptionDeclaration(
                "ask", value: "HOW", help: "where the person is asked (default: terminal)",
                choices: ["terminal", "desktop", "client", "never"]),
            OptionDeclaration("policy", value: "FILE", help: "directories that are granted or denied without asking: see the notes"),
        ] + RuleOptions.of("each granted directory") + [RuleOptions.protectTools],
        notes: [
            "Its tools are request_directory, list_directories, release_directory, extend_directory, narrow_directory and "
                + "explain_path. The grants are in a view of their own, which is mounted as long as this session lasts. They are "
                + "gone when their time is over, stdin ends or this process does, however it ends. grantfs list shows them, "
                + "and grantfs revoke withdraws them meanwhile.",
            "--ask client has the program that runs the agent put the question, if it says that it can (elicitation). "
                + "Otherwise the desktop asks, or the terminal. That program could answer by itself.",
            "A policy is TOML: deny = [\"~/.ssh\"], [[allow]] tables with path and access (read-only or read-write), and the "
                + "lists hide, protect and only, which hold before those of the options. "
                + "A denied directory is refused without asking. Without a policy every request is asked.",
            RuleOptions.note, RuleOptions.toolsNote,
        ], program: .sandbox)

    package static let begin = CommandDeclaration(
        "begin", "Begins a program in a sandbox that has what the descriptor LIST says.",
        operands: [
            OperandDeclaration("LIST"), OperandDeclaration("TERMINAL"), OperandDeclaration("PROXY"), OperandDeclaration("OBSERVER"),
            OperandDeclaration("COMMAND", isRepeatable: true, isCommand: true),
        ], isHidden: true, program: .sandbox)

    package static let proxy = CommandDeclaration(
        "proxy", "Reaches hosts for a program in a sandbox.", operands: [OperandDeclaration("HOST", isRepeatable: true)],
        isHidden: true, program: .sandbox)
}
