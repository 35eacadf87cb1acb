import GrantCommandLine

extension CommandDeclaration {
    package static let coordinate = CommandDeclaration(
        "coordinate", "Holds a claim on files and directories while a command runs, as flock(1) holds a lock.",
        operands: [
            OperandDeclaration("ACCESS", choices: ["read", "write"]), OperandDeclaration("PATH", isRepeatable: true),
            OperandDeclaration("COMMAND", isOptional: true, isRepeatable: true, isCommand: true),
        ],
        options: [
            CommonOptions.view,
            OptionDeclaration(
                "for", value: "WHAT", help: "the purpose of the access (read: metadata or uploading, write: all but uploading)",
                choices: ["metadata", "uploading", "deleting", "moving", "merging", "replacing"]),
            OptionDeclaration("to", value: "PATH", help: "with --for moving: the new place"),
            OptionDeclaration(
                "timeout", value: "S", help: "seconds to wait for the claim, 0 for none (default: no limit)"),
            OptionDeclaration(
                "hold", value: "S",
                help:
                    "seconds that operations through a mandatory grant wait for this claim, then EAGAIN (default: no limit)"),
            OptionDeclaration(
                "snapshot", value: "DIR",
                help: "read: copies the items into DIR, which is made, ends the claim and runs COMMAND on the copy"),
            OptionDeclaration("follow", help: "a link as the last name is followed"),
            OptionDeclaration(
                "when-lost", value: "WHAT", help: "end, with SIGTERM to the command, or go-on (default: end)",
                choices: ["end", "go-on"]),
            OptionDeclaration("json", help: "progress on stderr as JSON, an object on each line"),
        ],
        notes: [
            "PATH is the name or id of a grant, or a file or directory, on the host or below a mount (./NAME where a "
                + "grant has that name). Readers share, a writer excludes. Several paths are claimed together or "
                + "not at all.",
            "The command finds the place of the first PATH on the host in $GRANTFS_PATH, of the others in "
                + "$GRANTFS_PATH_2 and so on.",
            "Exit status: that of the command, or 128 and the number of the signal that ended it. 126 or 127 when "
                + "it cannot be run, 1 when there was no claim, or when it was lost while the command ran.",
            "With --snapshot the copies lie in DIR under their own names: data (shared with the originals where the "
                + "filesystem can), modes, owners, times, ACLs, extended attributes, links. The claim ends when they "
                + "are whole, and $GRANTFS_PATH is the copy. DIR stays. Without COMMAND the copies' places are printed.",
        ],
        takesCommand: true)

    package static let present = CommandDeclaration(
        "present", "Presents a file or directory, for commands: they make way for claims, save, and hear what becomes of it.",
        operands: [OperandDeclaration("PATH")],
        options: [
            CommonOptions.view,
            hook("relinquish", "before another process reads or writes there: make way"),
            hook("save", "before another process reads unsaved data, or the grant is revoked with --grace: save"),
            hook("delete", "before it, or something below it, is deleted: close it"),
            hook("revoke", "before the grant is revoked with --grace"),
            hook("reacquire", "when everything that it made way for has ended"),
            hook("change", "when it, or something below it, has changed or moved, or may have: see $GRANTFS_EVENT"),
            hook("release", "when no grant leads there any more"),
            OptionDeclaration(
                "timeout", value: "S", help: "seconds for a command to answer, 60 at the most (default: 5)"),
            OptionDeclaration("json", help: "every question and every notice as an object on a line"),
        ],
        notes: [
            "PATH is as for coordinate. It runs until it is interrupted, and says what it hears.",
            "Each CMD is run by /bin/sh, one after the other, with $GRANTFS_EVENT, $GRANTFS_PATH (where the item is on "
                + "the host), $GRANTFS_ITEM (the subject of the event: the item, something below it, or a directory "
                + "above it), $GRANTFS_NEW_PATH, $GRANTFS_PID and $GRANTFS_SECONDS, as far as they have one. A request "
                + "is answered when the command has ended. A command that takes longer than --timeout runs on, and "
                + "the claimant no longer waits for it.",
            "Claims that the commands make with grantfs coordinate precede the claim in question.",
        ])

    private static func hook(_ event: String, _ help: String) -> OptionDeclaration {
        OptionDeclaration("on-" + event, value: "CMD", help: help)
    }
}
