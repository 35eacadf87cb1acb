import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantProxy
import GrantSystem

/// `grantfs run`
enum RunCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let place = arguments.bytes("at") ?? SandboxPlaces.standard
        try SandboxPlaces.check(place)
        let request = try SandboxRequest(arguments)
        let view = try arguments.view() ?? .standard
        try SandboxProcess.requireProgram()
        let directory = try arguments.storeDirectory()
        // While there is one thread: with more, the kernel waits for an RCU grace period before a descriptor table can grow.
        DescriptorTable.grow()
        let program = try CompanionProgram.daemon.file()
        let label = TemporaryMount.newLabel()
        // Only a view of its own is sure to have a mount of its own.
        let daemon =
            request.grants.isEmpty
            ? nil
            : try? BackgroundStart.Waiting(
                program, words: daemonWords(label, store: directory, request, arguments), for: text(of: arguments.operands))
        // Runs in the background while the directories are looked up and the view is mounted.
        let files = SystemFiles(isRoot: geteuid() == 0, hasNetwork: request.hasNetwork)
        let system = Ahead { files.find(firstDescriptor: SandboxProcess.firstHanded) }
        // Checked first: a wrong directory leaves no trace.
        var choices = try RunChoices.proposals(request, in: directory, daemon?.probe ?? .command)
        try RunChoices.requireDirectory(choices, request)
        try RunChoices.addRepositories(to: &choices, arguments.has("worktree"), in: directory, daemon?.probe ?? .command)
        let file = choices.first { $0.access == .readWrite && $0.proposal.bookmark.document != nil }
        if let file, arguments.has("snapshot") || arguments.has("review") || arguments.has("undo") {
            throw GrantError(
                .usage, "run: a snapshot is of directories, and “\(file.name)” is a file",
                advice: "grant the directory it is in, or copy it")
        }
        if request.grants.contains(where: { !$0.rules.isEmpty }), ["snapshot", "review", "undo"].contains(where: arguments.has) {
            throw GrantError(
                .usage, "run: a snapshot would copy what the configuration of --config denies",
                advice: "run it without --snapshot, --review and --undo")
        }
        let ending = try RunEnding(
            arguments, granted: choices.filter { $0.access == .readWrite && !$0.isOffered }.map(\.path),
            rules: request.rules)
        if arguments.has("audit"), choices.isEmpty {
            throw GrantError(.usage, "run: --audit needs --grant", advice: "mount the view with -o audit, and see grantfs log")
        }
        var layout = SandboxLayout(view: place)
        if !arguments.has("at") { show(choices, in: &layout) }
        try bind(request, in: &layout, store: directory)
        // What it writes is void once the program or the machine has ended.
        let store = try GrantStore(directory: directory, create: true, survivesPowerLoss: false)
        TemporaryMount.sweep(store)
        let administrator = GrantAdministrator.command(store)
        for bind in layout.binds { try administrator.checkShown(bind.source) }
        if arguments.has("view") { try administrator.requireKnown(view) }
        let asking = try OfferAsking.Means(arguments, hasOffers: choices.contains(where: \.isOffered), ending != nil)
        var refused: (refused: [Refusal], others: Int) = ([], 0)
        typealias Started = (program: SandboxProcess, proxy: SandboxProxy?, observer: LookupObserver?)
        let start = { (mountpoint: [UInt8]) throws(GrantError) -> Started in
            let proxy = try SandboxProxy(request.hosts)
            let observer = arguments.has("learn") ? try LookupObserver(shown: layout.places + [layout.view]) : nil
            let sandbox = Sandbox(
                view: mountpoint, layout: layout, request: request, current: try? CanonicalPath.resolve(Array(".".utf8)))
            return (try SandboxProcess(sandbox, command: arguments.operands, system, proxy, observer), proxy, observer)
        }
        let run = { (started: Started, shown: ViewName) throws(GrantError) in
            let questions = asking.map { OfferAsking($0, about: shown, hasOwnView: !choices.isEmpty, store, started.program.terminal) }
            questions?.begin()
            defer { questions?.end() }
            let status = try started.program.run()
            if let proxy = started.proxy {
                refused = proxy.end()
                SandboxProxy.say(refused.refused, refused.others)
            }
            RunWants(label, started.observer?.found, refused: refused.refused, others: refused.others)?.record(in: store)
            return status
        }
        let live = choices.isEmpty ? try administrator.liveMount(of: view)?.mountpoint : nil
        if choices.isEmpty, !arguments.has("at") {
            let place = if let live { live } else { try administrator.temporaryMountpoint(of: view) }
            if let place { layout.show(mountpoint: place) }
        }
        if let live { return try run(try start(live), view) }
        let audit: SandboxAudit? =
            if let file = arguments.bytes("audit") {
                try SandboxAudit(file, granted: choices.map(\.path), store)
            } else { nil }
        try ending?.begin(arguments.operands, store)
        let lastEntry = try store.lastLogNumber()
        let temporary = try TemporaryMount.create(in: store, hasOwnView: !choices.isEmpty, label: label)
        // It is freed before the view is taken away, and the started parts of a sandbox end with
        // it.
        var started: Started?
        do throws(GrantError) {
            let shown = try grant(choices, to: temporary, administrator) ?? view
            let mountpoint = Array(temporary.mountpoint.utf8)
            var failure: GrantError?
            try mount(
                shown, temporary, store, isAudited: arguments.has("audit"), for: RunCommand.text(of: arguments.operands),
                by: daemon
            ) {
                guard Sandbox.canWait else { return }
                do throws(GrantError) {
                    started = try start(mountpoint)
                } catch {
                    failure = error
                }
            }
            if let failure { throw failure }
            let program = if let started { started } else { try start(mountpoint) }
            let status = try run(program, shown)
            started = nil
            try audit?.write(shown, store, refused: refused.refused)
            try end(temporary, store, daemon)
            // Best effort: the program has ended, and the log has it.
            if !choices.isEmpty { try? sayRefusals(in: shown, since: lastEntry, store) }
            try ending?.end()
            return status
        } catch {
            started = nil
            try? end(temporary, store, daemon)
            ending?.abandon()
            throw error
        }
    }

    /// Says how much the program was refused, by rules, as changes of read-only directories and after revocations.
    private static func sayRefusals(in view: ViewName, since last: Int64, _ store: GrantStore) throws(GrantError) {
        var (count, first): (Int64, [UInt8]?) = (0, nil)
        try store.readLog(after: last) { entry in
            guard entry.event == .denied, entry.view == view else { return }
            count += entry.count ?? 1
            first = first ?? entry.path
        }
        if count == 0 { return }
        let place = first.map { ", the first at \(Terminal.visible($0))" } ?? ""
        Terminal.note("\(count == 1 ? "1 operation was" : "\(count) operations were") refused\(place): see grantfs why \(view)")
    }

    /// Shows the directories at their own paths, where possible.
    private static func show(_ choices: [RunChoice], in layout: inout SandboxLayout) {
        // Parent directories first, not in the given order.
        for choice in choices.sorted(by: { $0.path.count < $1.path.count }) {
            let path = choice.path
            // It takes the place of the file's directory, of which nothing else is shown.
            let isInDirectory = choice.proposal.bookmark.document?.form == .directory
            let shown = isInDirectory ? CanonicalPath.parent(of: path) : path
            guard let reason = layout.show(choice.name, at: shown) else { continue }
            let file = isInDirectory ? "/\(choice.proposal.name)" : ""
            let place = "\(String(decoding: layout.view, as: UTF8.self))/\(choice.name)\(file)"
            Terminal.note("“\(String(decoding: path, as: UTF8.self))” is at \(place) alone: \(reason)")
        }
    }

    private static func bind(_ request: SandboxRequest, in layout: inout SandboxLayout, store: String) throws(GrantError) {
        for bind in request.binds + request.toolBinds { try GrantAdministrator.checkShown(bind.source, store: store) }
        for bind in request.binds { try layout.bind(bind) }
        // The program sees what a tool has in a granted directory anyway.
        for bind in request.toolBinds { try? layout.bind(bind) }
    }

    /// Grants the choices in a view, and returns it, or nil if there are none.
    private static func grant(
        _ choices: [RunChoice], to temporary: TemporaryMount, _ administrator: GrantAdministrator
    ) throws(GrantError) -> ViewName? {
        if choices.isEmpty { return nil }
        let view = try ParsedArguments.view(named: temporary.label)
        _ = try administrator.grant(
            choices.map { $0.choice(in: view) })
        return view
    }

    /// Mounts with a daemon of its own, which cleans up when this process dies. `daemon` was
    /// started ahead and waits for the command. In that case `attached` is called when the mount
    /// exists and is not yet served.
    static func mount(
        _ view: ViewName, _ temporary: TemporaryMount, _ store: GrantStore, isAudited: Bool,
        for command: String? = nil, by daemon: BackgroundStart.Waiting? = nil, isBound: Bool = false, attached: () -> Void = {}
    ) throws(GrantError) {
        let words = words(
            view.description, temporary.file, store: store.directory, at: temporary.mountpoint, isAudited: isAudited, isBound: isBound)
        let program = try CompanionProgram.daemon.file()
        let status: Int32
        do throws(Errno) {
            // The store may be elsewhere than expected when the daemon was started.
            status =
                if let daemon, daemon.words == words {
                    try daemon.go(attached: attached)
                } else {
                    try BackgroundStart.run(program, words: words, for: command)
                }
        } catch {
            throw GrantError(.mountFailed, "the daemon cannot be started", cause: error.description)
        }
        if status != 0 {
            throw GrantError(
                .mountFailed, "the view “\(view)” cannot be shown to the program",
                advice: "see the lines above, and grantfs doctor")
        }
    }

    /// The daemon's arguments for a view with this label, in a store that may not exist yet.
    private static func daemonWords(
        _ label: String, store: String, _ request: SandboxRequest, _ arguments: ParsedArguments
    ) -> [[UInt8]] {
        let store = String(decoding: CanonicalPath.resolveWhatExists(Array(store.utf8)), as: UTF8.self)
        return words(
            label, TemporaryMount.file(label: label, hasOwnView: true), store: store,
            at: store + "/run/" + label, isAudited: arguments.has("audit"))
    }

    /// The command line for the log, cut to a readable length.
    static func text(of words: [[UInt8]]) -> String {
        VisibleText.cut(words.map { String(decoding: $0, as: UTF8.self) }.joined(separator: " "), to: 300)
    }

    /// `isBound`: with the directories of `ShownViews.bound`, and with the filesystems that are mounted in the directories.
    static func words(
        _ view: String, _ file: String, store: String, at mountpoint: String, isAudited: Bool, isBound: Bool = false
    ) -> [[UInt8]] {
        let words =
            ["grantfs", "mount", "--store", store, "--temporary", file] + (isAudited ? ["-o", "audit"] : [])
            + (isBound ? ["--bound", "-o", "submounts"] : [])
            + ["--", view, mountpoint]
        return words.map { Array($0.utf8) }
    }

    /// Unmounts, and waits a moment for the daemon.
    static func end(_ temporary: TemporaryMount, _ store: GrantStore, _ daemon: BackgroundStart.Waiting? = nil) throws(GrantError) {
        let kept = KeptFilesReport(store)
        defer { kept.print() }
        let daemons = try store.mounts().filter { $0.mountpoint == Array(temporary.mountpoint.utf8) }
        try temporary.clean()
        // Not if another daemon has taken the mount over.
        if let daemon, daemon.serves(daemons) { return daemon.awaitEnd(within: 2_000_000_000) }
        MountEnd.wait(for: daemons)
    }
}
