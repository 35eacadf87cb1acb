import GrantCommandLine

extension CommandDeclaration {
    package static let unmount = CommandDeclaration(
        "unmount", aliases: ["umount"], "Unmounts a view, as fusermount3 -u or umount do.",
        operands: [OperandDeclaration("MOUNTPOINT")])

    package static let upgrade = CommandDeclaration(
        "upgrade",
        "Replaces the daemons of live mounts by daemons of this program. Users of a mount wait for a moment.",
        operands: [OperandDeclaration("MOUNTPOINT", isOptional: true, isRepeatable: true)],
        options: [OptionDeclaration("all", short: "a", help: "every live mount of the store"), CommonOptions.json],
        notes: [
            "Open files, locks, waiting requests and revocations stay with the mount. A daemon that cannot be replaced "
                + "now goes on as before, and the reason is printed: a withdrawal or an operation does not end, or a "
                + "claim is held. Status 3 then."
        ])

    package static let status = CommandDeclaration(
        "status", "Which views are mounted where, and which processes hold files of them?",
        options: [
            CommonOptions.view, OptionDeclaration("timeout", value: "S", help: "seconds for each mount to answer"), CommonOptions.json,
        ],
        notes: [
            "A mount whose daemon has died is shown as dead, as long as it is mounted or a process holds something of "
                + "it. The exit status is 1 then.",
            "If the process behind mount --views has died, this is reported, with --json as mountsViews, and the exit status is 1.",
        ])

    package static let top = CommandDeclaration(
        "top", "What happens in the mounts, or in the fleet, right now? Keys revoke, restore, narrow and unmount.",
        options: [
            CommonOptions.view, OptionDeclaration("delay", short: "d", value: "S", help: "seconds between two looks (default: 2)"),
            OptionDeclaration(
                "fleet", help: "the hosts and grants of the fleet, who lags, and how each host stands to a grant", program: .fleet),
            CommonOptions.timeout,
        ],
        notes: [
            "If stdout is not a terminal it looks twice, prints one page and ends. For programs there is status --json."
        ])

    package static let metrics = CommandDeclaration(
        "metrics", "How much do the mounts, the host's agent or the fleet do? Counts for a monitoring system, as OpenMetrics.",
        options: [
            CommonOptions.view, OptionDeclaration("timeout", value: "S", help: "seconds for each mount to answer (default: 2)"),
            OptionDeclaration(
                "fleet", help: "of the fleet as its administrator sees it: hosts, those that lag, grants by state", program: .fleet),
            OptionDeclaration("listen", value: "unix:PATH", help: "answer scrapes by HTTP at this socket, until interrupted"),
        ],
        notes: [
            "For node_exporter's textfile collector write it to a file beside and rename that. For a scrape, --listen "
                + "makes a socket of mode 0600."
        ])

    package static let log = CommandDeclaration(
        "log", "Shows who granted, revoked, restored, changed, mounted, or was denied, and when.",
        options: [
            OptionDeclaration("grant", value: "SELECTOR", help: "only of grants of this name, or with this id or beginning of an id"),
            OptionDeclaration("since", value: "WHEN", help: "only entries that are not older: 30m, 1h, 7d, or an ISO 8601 time"),
            CommonOptions.view,
            OptionDeclaration("lines", short: "n", value: "N", help: "only the last N entries"),
            OptionDeclaration(
                "follow",
                help: "show entries, and events of mounts, as they come, until interrupted, with --since or -n earlier entries first"),
            OptionDeclaration(
                "fleet", help: "changes by administrators of the fleet, on every machine", program: .fleet),
            OptionDeclaration("json", help: "one JSON document on stdout, with --follow one on each line"),
        ],
        notes: [
            "Events of mounts are not recorded: waits, grants and ends of claims, their changes to files, and the end of a mount. "
                + "With --fleet, --follow also shows which hosts come and go, and what they cannot do."
        ])

    package static let inventory = CommandDeclaration(
        "inventory", "Says on descriptor 3, on a line for each store, what it has on record.",
        operands: [OperandDeclaration("STORE", isRepeatable: true)],
        options: [OptionDeclaration("as", value: "UID", help: "become that user first", isHidden: true)],
        isHidden: true)
}
