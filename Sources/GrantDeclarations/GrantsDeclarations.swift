import GrantCommandLine

extension CommandDeclaration {
    package static let grant = CommandDeclaration(
        "grant", "Bookmarks directories or files, grants them to a view and prints the grants' ids.",
        operands: [OperandDeclaration("DIR", isRepeatable: true)],
        options: [
            OptionDeclaration("view", value: "V", help: "the view (default: “default”)"),
            OptionDeclaration("name", value: "N", help: "the name in the view, for one DIR alone (default: the directory's own)"),
            CommonOptions.readOnly("nothing can be changed below the grant (also: DIR:ro)"), CommonOptions.access,
            OptionDeclaration("expires", value: "WHEN", help: "when it ends by itself: 90s, 2h, 7d, or an ISO 8601 time"),
            OptionDeclaration(
                "as-directory", help: "shows a file in a directory of its own, in which programs can save it by a rename"),
            OptionDeclaration("offered", help: "only the name is visible until it is allowed (see run --ask)"),
            OptionDeclaration("tag", help: "the directory gets a tag, an extended attribute by which a restored copy is recognised"),
        ] + RuleOptions.of("the directory") + [
            FleetOptions.fleet, FleetOptions.hosts, FleetOptions.filesystem, FleetOptions.dryRun, CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            RuleOptions.note,
            "An identical grant (directory, view, name, access, expiry, rules) is kept: its id is printed, and the exit status "
                + "is 0. Of several directories all are granted or none.",
            "With --as-directory, what programs save beside the file is kept when the grant is withdrawn or the mount ends: in a directory beside the "
                + "file on the host, FILE.kept- and 8 digits, which revoke and unmount name and the log records.",
            "A tag never gives access by itself: a directory that carries the tag of a lost one is entered after grantfs repair --confirm.",
        ])

    package static let pick = CommandDeclaration(
        "pick", "Lets directories be chosen in the terminal, grants them and prints the grants' ids.",
        operands: [OperandDeclaration("START", isOptional: true)],
        options: [
            OptionDeclaration("view", value: "V", help: "the view that a choice begins with (default: “default”)"),
            CommonOptions.readOnly("a choice begins as read-only"), CommonOptions.access, CommonOptions.timeout,
            OptionDeclaration("expires", value: "WHEN", help: "a choice begins as one that ends then: 90s, 2h, 7d, or an ISO 8601 time"),
            OptionDeclaration("desktop", help: "the file chooser of the desktop is asked instead, through its portal"),
            OptionDeclaration("files", help: "with --desktop: files are chosen, and granted one by one"),
            OptionDeclaration(
                "as-directory", help: "with --files: each is shown in a directory of its own, in which programs can save it by a rename"),
            OptionDeclaration("json", help: "one JSON document on stdout, an array of the grants"),
        ] + RuleOptions.of("each directory"),
        notes: [
            RuleOptions.note,
            "It starts in START, else where one picked last, else at home. Escape changes nothing and exits with 1. F1 "
                + "shows the keys.",
            "A file is marked by typing its path. Nothing is granted unless everything that was chosen can be.",
        ])

    package static let list = CommandDeclaration(
        "list", aliases: ["ls"], "What is granted, to which view, in which state, and where is it now?",
        operands: [OperandDeclaration("NAME", isOptional: true)],
        options: [
            CommonOptions.view, OptionDeclaration("all", help: "revoked and expired ones as well"),
            OptionDeclaration("all-users", help: "for root: those in every user's store that can be found, as they are recorded"),
            SystemOptions.system, FleetOptions.fleet, CommonOptions.json,
        ],
        notes: [
            "With NAME it shows that grant in any state, with its history and the mounts that show it. NAME may also be an id, "
                + "or a unique prefix of the id of 8 characters or more. A name in several views needs --view.",
            "--all-users reads root's store, ~/.local/share/grantfs of each user, and the stores that running daemons "
                + "have open. Each store is read by a process of its owner, and no directory is opened. Exit status: 1 "
                + "when a store could not be read. It is named.",
        ])

    package static let why = CommandDeclaration(
        "why", "Which grant and rule decide about a path and what would change it, or what did a run not get?",
        operands: [OperandDeclaration("PATH", isOptional: true)],
        options: [CommonOptions.view, CommonOptions.json],
        notes: [
            "PATH may also be a run: run-…, as grantfs run has printed it, or the beginning of that (default: the newest run). Then it lists the names "
                + "outside of the grants that the program looked up (run --learn), what was refused in grants, and hosts that were refused. A file "
                + "of that name is ./run-…",
            "PATH is on the host or in a mounted view, and need not exist. A hidden name is answered as well. In a view it is explained "
                + "by its grant alone. Links above PATH are followed, and none below a granted directory.",
            "It reads the store and changes nothing. Permissions of files are not looked at.",
            "Exit status: 0 if a grant permits to read PATH, 1 if none does. Of a run it is 0.",
        ])

    package static let revoke = CommandDeclaration(
        "revoke", "Withdraws grants: on disk first, then in every mount of the view, from open files too.",
        operands: [OperandDeclaration("SELECTOR", isOptional: true, isRepeatable: true)],
        options: [
            CommonOptions.view,
            OptionDeclaration(
                "path", value: "DIR", help: "every grant, in every view, through which DIR can be reached: of DIR, of a parent, of a child",
                isRepeatable: true),
            OptionDeclaration("all", help: "every grant: of --view V, else of every view"),
            OptionDeclaration(
                "grace", value: "TIME",
                help: "presenters are asked to save first, and nothing is withdrawn within this time: 30s, 2m"),
            OptionDeclaration("dry-run", help: "print the grants that would be withdrawn, and withdraw nothing"),
            OptionDeclaration("yes", short: "y", help: "do not ask, when --path or --all on a terminal finds several"),
            OptionDeclaration(
                "kill",
                help: "kill the processes that keep a mount from confirming: its daemon has died, they get no processor, or they keep a "
                    + "directory locked by a listing that does not end"),
            SystemOptions.system, FleetOptions.fleet, CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            CommonOptions.selectorNote,
            "When it returns 0, every mount has confirmed that nothing can be reached through the grant any more. It exits with 3 when "
                + "the withdrawal is recorded and some mount has not confirmed it within the timeout.",
            "A mount whose daemon has died does not confirm as long as processes hold something of it. They are named. "
                + "A held file may be of any grant of that mount: --kill ends them all.",
            "DIR may also be a path in a mounted view. Where --path or --all finds several grants it asks, on a terminal.",
            "Other grants through which the files can still be reached are named, with --json under “reachable”.",
            "How far it is, should it take long, is shown on a terminal, and with --json on stderr, an object on each line.",
            "What no revocation can take back: bytes that a program has already copied to its own memory.",
        ])

    package static let restore = CommandDeclaration(
        "restore", "Makes revoked or expired grants active again, in every mount of their view.",
        operands: [OperandDeclaration("SELECTOR", isRepeatable: true)],
        options: [
            CommonOptions.view, SystemOptions.restore, FleetOptions.fleet, FleetOptions.dryRun, CommonOptions.timeout,
            CommonOptions.json,
        ],
        notes: [CommonOptions.selectorNote, "Handles from before the revocation stay refused. New opens work."])

    package static let remove = CommandDeclaration(
        "remove", aliases: ["rm"], "Revokes grants, then forgets them. The log keeps their entries.",
        operands: [OperandDeclaration("SELECTOR", isRepeatable: true)],
        options: [CommonOptions.view, FleetOptions.fleet, FleetOptions.dryRun, CommonOptions.timeout, CommonOptions.json],
        notes: [CommonOptions.selectorNote])

    package static let set = CommandDeclaration(
        "set", "Changes a grant, live in every mount of its view.",
        operands: [OperandDeclaration("SELECTOR")],
        options: [
            CommonOptions.view,
            CommonOptions.access, CommonOptions.readOnly("as --access read-only"),
            OptionDeclaration("name", value: "N", help: "the new name in the view"),
            OptionDeclaration("expires", value: "WHEN", help: "90s, 2h, 7d, an ISO 8601 time, or “never”"),
            OptionDeclaration(
                "coordination", value: "C", help: "advisory: claims bind claimants, mandatory: every process in a mount",
                choices: ["advisory", "mandatory"]),
        ] + RuleOptions.of("the directory") + [
            OptionDeclaration("no-rules", help: "remove the patterns of all three lists"),
            FleetOptions.fleet, FleetOptions.dryRun, CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            CommonOptions.selectorNote, RuleOptions.note,
            "Each list of patterns that is given replaces that list, an empty PATTERN alone empties it, and the others stay.",
            "Narrowing is a partial revocation: handles opened before are narrowed too.",
        ])

    package static let repair = CommandDeclaration(
        "repair", "Shows grants whose directory is not where it was and what each needs, or accepts a replacement.",
        operands: [OperandDeclaration("SELECTOR", isOptional: true)],
        options: [
            CommonOptions.view, OptionDeclaration("all", help: "every grant, in any state"),
            OptionDeclaration("confirm", value: "PATH", help: "accept the directory or file at PATH in place of the grant's own"),
            OptionDeclaration("prune", help: "remove the grants whose directory is missing, naming each"),
            OptionDeclaration("recorded", help: "what bookmarks hold, as JSON, without a look at any disk"),
            OptionDeclaration(
                "fleet", help: "grants of the fleet, and how each host stands to them", program: .fleet),
            CommonOptions.timeout,
            CommonOptions.json,
        ],
        notes: [
            "With SELECTOR it shows where that grant's bookmark points and its state, whether or not it needs repair.",
            CommonOptions.selectorNote,
            "--confirm is for a grant whose bookmark is “replaced”: PATH is the grant's own path, or the directory with its "
                + "tag. Without it, another directory is never entered. Every user who may write to a directory can give it "
                + "a tag: look at it first.",
            "A grant whose filesystem is not mounted, or whose directory lies in a Trash, is never pruned.",
        ])

    package static let release = CommandDeclaration(
        "release", "Closes grants' directories in every mount, so that their filesystem can be unmounted.",
        operands: [OperandDeclaration("SELECTOR", isRepeatable: true)],
        options: [CommonOptions.view, CommonOptions.timeout, CommonOptions.json],
        notes: [
            CommonOptions.selectorNote,
            "A released grant stays granted. It is back within a second of its filesystem being unmounted and mounted again.",
            "Open files of the grant are refused, but keep the filesystem busy until they are closed and the kernel has "
                + "forgotten them. The processes that hold them are named.",
        ])

    package static let apply = CommandDeclaration(
        "apply", "Changes the grants to those that files declare, after showing the difference.",
        operands: [OperandDeclaration("FILE", isRepeatable: true)],
        options: [
            OptionDeclaration("dry-run", help: "show the difference and change nothing"),
            OptionDeclaration("yes", short: "y", help: "do not ask, on a terminal, before something is taken away"),
            OptionDeclaration("restore", help: "make declared grants active again that were revoked or have expired"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            "FILE is TOML as export writes it, a directory stands for its files *.grants, and - for standard input. "
                + "Of each view that the files name they declare all the grants: any other is withdrawn and forgotten. "
                + "Other views are unchanged.",
            "All files and directories are checked first. An error changes nothing. Without --restore a revoked or "
                + "expired grant stays revoked or expired.",
        ])

    package static let export = CommandDeclaration(
        "export", "Prints the grants as a file that apply takes.",
        options: [CommonOptions.view],
        notes: ["The active grants. A view whose grants are all revoked or expired is named, so that apply leaves it without one."])
}
