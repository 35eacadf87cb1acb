import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import LinuxFS

/// `grantfs run`
enum RunCommand {
    static let declaration = CommandDeclaration(
        "run", "Runs a program in a sandbox that shows it a view, and nothing else of anybody's files.",
        operands: [OperandDeclaration("COMMAND", isRepeatable: true, isCommand: true)],
        options: [
            OptionDeclaration("view", value: "V", help: "the view; “default” when left out"),
            OptionDeclaration(
                "grant", value: "DIR[:ro]", help: "a view for this program alone, of this directory; read-only with :ro", isRepeatable: true
            ),
            OptionDeclaration("at", value: "PATH", help: "where the program finds the view; /grants when left out"),
            OptionDeclaration("network", help: "leave it the network"),
            OptionDeclaration("env", value: "NAME[=VALUE]", help: "a variable for it, the caller's own without =VALUE", isRepeatable: true),
        ],
        notes: [
            "The program has the system's /usr and /etc to read, a /tmp and a home directory of its own that are gone afterwards, its own processes, and no "
                + "capability. The exit status is the program's; 1 and 2 may also come from grantfs.",
            "With --grant the view and its grants exist as long as the program does; list shows them, and revoke takes them away meanwhile.",
            "Needs bubblewrap.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let place = arguments.bytes("at") ?? SandboxPlaces.standard
        try SandboxPlaces.check(place)
        let variables = try variables(arguments)
        let wishes = try wishes(arguments)
        let view = try arguments.view() ?? .standard
        try SandboxProcess.requireProgram()
        let directory = try arguments.storeDirectory()
        // Looked at first: a wrong directory leaves no trace.
        var proposals: [(GrantAdministrator.Proposal, Access)] = []
        for (path, access) in wishes {
            proposals.append((try GrantAdministrator.propose(directory: path, name: nil, store: directory, lookout: .command), access))
        }
        let store = try GrantStore(directory: directory, create: true)
        TemporaryMount.sweep(store)
        let administrator = GrantAdministrator.command(store)
        if arguments.has("view") { try administrator.requireKnown(view) }
        if proposals.isEmpty, let live = try administrator.liveMount(of: view) {
            return try start(arguments, live.mountpoint, place, variables)
        }
        let temporary = try TemporaryMount.create(in: store, hasOwnView: !proposals.isEmpty)
        do throws(GrantError) {
            let shown = try grant(proposals, to: temporary, administrator) ?? view
            try mount(shown, temporary, store)
            let status = try start(arguments, Array(temporary.mountpoint.utf8), place, variables)
            try end(temporary, store)
            return status
        } catch {
            try? end(temporary, store)
            throw error
        }
    }

    /// The view that they are in; nil when there are none.
    private static func grant(
        _ proposals: [(GrantAdministrator.Proposal, Access)], to temporary: TemporaryMount, _ administrator: GrantAdministrator
    ) throws(GrantError) -> ViewName? {
        if proposals.isEmpty { return nil }
        let view = try ParsedArguments.view(named: temporary.label)
        for (proposal, access) in proposals { _ = try administrator.grant(proposal, view: view, access: access, expires: nil) }
        return view
    }

    private static func start(
        _ arguments: ParsedArguments, _ mountpoint: [UInt8], _ place: [UInt8], _ variables: [(name: String, value: [UInt8])]
    ) throws(GrantError) -> Int32 {
        let sandbox = try Sandbox(view: mountpoint, place: place, hasNetwork: arguments.has("network"), variables: variables)
        return try SandboxProcess.run(sandbox, command: arguments.operands)
    }

    /// By a daemon of its own, which cleans up when this process dies.
    private static func mount(_ view: ViewName, _ temporary: TemporaryMount, _ store: GrantStore) throws(GrantError) {
        let words = [
            "grantfs", "mount", "--store", store.directory, "--temporary", temporary.file, "--", view.description, temporary.mountpoint,
        ]
        let status: Int32
        do {
            status = try BackgroundStart.run(words: words.map { Array($0.utf8) })
        } catch {
            throw GrantError(.mountFailed, "the daemon cannot be started", cause: error.description)
        }
        if status != 0 {
            throw GrantError(
                .mountFailed, "the view “\(view)” cannot be shown to the program",
                advice: "see the lines above; grantfs doctor looks at the machine")
        }
    }

    private static func end(_ temporary: TemporaryMount, _ store: GrantStore) throws(GrantError) {
        let daemons = try store.mounts().filter { $0.mountpoint == Array(temporary.mountpoint.utf8) }
        try temporary.clean()
        UnmountCommand.awaitEnd(of: daemons)
    }

    /// `DIR`, `DIR:ro`, and `DIR:rw` for a directory whose name ends in `:ro`.
    static func wishes(_ arguments: ParsedArguments) throws(GrantError) -> [(path: [UInt8], access: Access)] {
        let given = arguments.options["grant"] ?? []
        if !given.isEmpty, arguments.has("view") {
            throw GrantError(.usage, "run: --grant makes a view of its own", advice: "leave --view out, or use grantfs grant --view")
        }
        var wishes: [(path: [UInt8], access: Access)] = []
        for word in given {
            let ending = word.suffix(3)
            let isMarked = ending.elementsEqual(":ro".utf8) || ending.elementsEqual(":rw".utf8)
            let path = isMarked ? Array(word.dropLast(3)) : word
            if path.isEmpty { throw GrantError(.usage, "the value of --grant is empty") }
            wishes.append((path, ending.elementsEqual(":ro".utf8) ? .readOnly : .readWrite))
        }
        return wishes
    }

    private static func variables(_ arguments: ParsedArguments) throws(GrantError) -> [(name: String, value: [UInt8])] {
        var result: [(name: String, value: [UInt8])] = []
        for word in arguments.options["env"] ?? [] {
            let equals = word.firstIndex(of: UInt8(ascii: "="))
            let name = try ParsedArguments.text(Array(word[..<(equals ?? word.endIndex)]), "the name in --env")
            if name.isEmpty { throw GrantError(.usage, "the value of --env has no name", advice: "--env NAME=VALUE") }
            let value = equals.map { Array(word[($0 + 1)...]) } ?? SandboxEnvironment.value(of: name)
            if let value { result.append((name, value)) }
        }
        return result
    }
}
