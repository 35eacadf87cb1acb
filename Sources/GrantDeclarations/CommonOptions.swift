import GrantCommandLine

/// Options of several commands.
enum CommonOptions {
    static let view = OptionDeclaration("view", value: "V", help: "only in this view")
    static let json = OptionDeclaration("json", help: "one JSON document on stdout")
    static let access = OptionDeclaration(
        "access", value: "A", help: "read-write (rw) or read-only (ro)", choices: ["read-write", "read-only", "rw", "ro"])
    static func readOnly(_ help: String) -> OptionDeclaration {
        OptionDeclaration("read-only", short: "r", aliases: ["ro"], help: help)
    }
    static let timeout = OptionDeclaration("timeout", value: "S", help: "seconds for the mounts to confirm (default: 10)")
    static let selectorNote =
        "SELECTOR is a grant's name, its id, or a unique prefix of the id of 8 characters or more. A name in several views needs --view."
}

/// Options of the commands that can work on the fleet.
enum FleetOptions {
    static let fleet = OptionDeclaration(
        "fleet", help: "of the fleet, and not of this store: on every host that it is for", program: .fleet)
    static let hosts = OptionDeclaration(
        "hosts", value: "WHICH",
        help: "with --fleet: the hosts with these labels, such as role=build,zone!=b or host=NAME (default: all)")
    static let filesystem = OptionDeclaration(
        "filesystem", value: "FS",
        help:
            "with --fleet: directories are paths from the root of this filesystem on, UUID=… or the source of a network mount (server:/export), and are found wherever a host has it mounted"
    )
    static let dryRun = OptionDeclaration("dry-run", help: "with --fleet: print the changes on each host, and change nothing")
}

/// Options of the commands that can ask the service of root's store.
enum SystemOptions {
    static let system = OptionDeclaration(
        "system", help: "in root's store, by its service, in the views where the administrator's policy lets you revoke")

    static let restore = OptionDeclaration(
        "system", help: "in root's store, by its service: what you have revoked there yourself")
}
