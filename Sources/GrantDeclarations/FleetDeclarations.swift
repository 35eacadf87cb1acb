import GrantCommandLine

extension CommandDeclaration {
    package static let fleet = CommandDeclaration(
        "fleet", "Makes a fleet of hosts that share grants through etcd, takes hosts in and out, and shows them.",
        subcommands: [
            fleetInit, fleetInvite, fleetJoin, fleetLeave, fleetHosts, fleetStatus, fleetApply, fleetConsole,
        ],
        notes: ["Other commands change and show the fleet's grants with --fleet: grant, list, revoke, restore, remove, set and log."],
        program: .fleet)

    private static let fleetInit = CommandDeclaration(
        "init", "Makes the fleet, and keeps the administrator's credentials in the store.",
        options: [
            OptionDeclaration("endpoints", value: "URLS", help: "the endpoints of etcd: https://HOST:2379, several with commas"),
            OptionDeclaration("ca", value: "FILE", help: "the authority that has signed the servers' certificates"),
            fleetCertificate, fleetKey,
            OptionDeclaration("user", value: "U", help: "a user of etcd with the role root, where etcd asks for passwords already"),
            OptionDeclaration("password-file", value: "FILE", help: "that user's password, in the first line"),
            OptionDeclaration(
                "lease", value: "TIME", help: "how long a host that is cut off may serve, 5s at the least (default: 15s)"),
            OptionDeclaration("again", help: "after a backup of etcd was restored: withdraws every grant and starts again"),
        ])

    private static let fleetInvite = CommandDeclaration(
        "invite", "Writes an invitation for a host, or for an administrator.",
        operands: [OperandDeclaration("HOST")],
        options: [
            OptionDeclaration("label", value: "L=V", help: "a label of the host, by which grants choose", isRepeatable: true),
            OptionDeclaration("administrator", help: "an administrator, who may grant and revoke, and neither invite nor take out"),
            OptionDeclaration("output", value: "FILE", help: "where the invitation is written (default: HOST.invitation)"),
            fleetCertificate, fleetKey,
        ],
        notes: ["An invitation holds a password and perhaps a key: give it to that host alone."])

    private static let fleetJoin = CommandDeclaration(
        "join", "Takes this host into the fleet.", operands: [OperandDeclaration("FILE")], options: [CommonOptions.timeout],
        notes: ["FILE is the invitation that grantfs fleet invite has written."])

    private static let fleetLeave = CommandDeclaration(
        "leave", "Takes this host out of the fleet, or as an administrator the named host.",
        operands: [OperandDeclaration("HOST", isOptional: true)], options: [CommonOptions.timeout])

    private static let fleetHosts = CommandDeclaration(
        "hosts", "Lists the hosts, how far each is, and its problems.", options: [CommonOptions.json])

    private static let fleetStatus = CommandDeclaration(
        "status", "Shows the members of etcd and the fleet, or this host's part in it.", options: [CommonOptions.json])

    private static let fleetApply = CommandDeclaration(
        "apply", "Makes what the fleet grants equal to what a file declares, or the files *.grants of a directory.",
        operands: [OperandDeclaration("FILE")],
        options: [
            OptionDeclaration("dry-run", help: "show the difference, with the hosts, and change nothing"),
            OptionDeclaration("yes", short: "y", help: "do not ask, on a terminal, before something is taken away"),
            OptionDeclaration("restore", help: "make declared grants active again that were revoked or have expired"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: ["As grantfs apply, with hosts = \"role=build\" for a grant that is not for all."])

    private static let fleetCertificate = OptionDeclaration(
        "cert", value: "FILE", help: "the client's certificate, of its own for each host")

    private static let fleetKey = OptionDeclaration("key", value: "FILE", help: "the key of that certificate, which others cannot read")

    private static let fleetConsole = CommandDeclaration(
        "console", "Shows the fleet to browsers, which revoke and restore with the credentials of the user who runs it.",
        options: [
            OptionDeclaration(
                "listen", value: "PLACE", help: "a numeric ADDRESS:PORT, port 0 for a free one (default: 127.0.0.1:9460)"),
            OptionDeclaration(
                "certificate", value: "FILE", help: "the server's certificate, with its chain, needed except on this machine alone"),
            OptionDeclaration("key", value: "FILE", help: "the key of that certificate, which others cannot read"),
            OptionDeclaration("name", value: "NAME", help: "another name by which browsers know it", isRepeatable: true),
            OptionDeclaration("token-file", value: "FILE", help: "the token that browsers need, in its first line"),
            OptionDeclaration("client-ca", value: "FILE", help: "let in browsers with a certificate that this authority has signed"),
        ],
        notes: [
            "It prints the address to open, with a new token each time unless --token-file or --client-ca is given. "
                + "With both, both are needed. Without TLS it serves this machine alone."
        ])

    package static let fleetCheck = CommandDeclaration(
        "fleet-check", "Prints what grantfs doctor says of this machine's part in a fleet, as JSON.", isHidden: true, program: .fleet)

    package static let agent = CommandDeclaration(
        "agent", "Applies the fleet's grants on this host, as its only agent and as a service.",
        notes: [
            "The host has to be in a fleet (grantfs fleet join). It starts also when etcd cannot be reached, and goes on when that can.",
            "When it is ended the mounts show the fleet's grants for no longer than the host's lease, and then withdraw "
                + "them by themselves.",
        ], program: .fleet)
}
