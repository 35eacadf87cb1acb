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
        var choices = try proposals(request, in: directory, daemon?.probe ?? .command)
        try requireDirectory(choices, request)
        try addRepositories(to: &choices, arguments.has("worktree"), in: directory, daemon?.probe ?? .command)
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
            arguments, granted: choices.filter { $0.access == .readWrite && !$0.isOffered }.map(\.proposal.bookmark.path),
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
        typealias Started = (program: SandboxProcess, proxy: SandboxProxy?)
        let start = { (mountpoint: [UInt8]) throws(GrantError) -> Started in
            let proxy = try SandboxProxy(request.hosts)
            let sandbox = Sandbox(
                view: mountpoint, layout: layout, request: request, current: try? CanonicalPath.resolve(Array(".".utf8)))
            return (try SandboxProcess(sandbox, command: arguments.operands, system, proxy), proxy)
        }
        let run = { (started: Started, shown: ViewName) throws(GrantError) in
            let questions = asking.map { OfferAsking($0, about: shown, store, started.program.terminal) }
            questions?.begin()
            defer { questions?.end() }
            let status = try started.program.run()
            if let proxy = started.proxy {
                refused = proxy.end()
                SandboxProxy.say(refused.refused, refused.others)
            }
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
                try SandboxAudit(file, granted: choices.map(\.proposal.bookmark.path), store)
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
        Terminal.note("\(count == 1 ? "1 operation was" : "\(count) operations were") refused\(place): see grantfs log --view \(view)")
    }

    private typealias Chosen = (
        proposal: GrantAdministrator.Proposal, name: GrantName, access: Access, rules: GrantRules, isOffered: Bool
    )

    /// Returns what to grant, each under a distinct name: directories with the same last name get a number.
    private static func proposals(
        _ request: SandboxRequest, in store: String, _ probe: DirectoryProbe
    ) throws(GrantError) -> [Chosen] {
        var chosen: [Chosen] = []
        for wish in request.grants {
            // A writable file is shown in a directory of its own, because most programs save by replacing the file.
            let proposal = try GrantAdministrator.propose(
                directory: wish.path, name: nil, store: store, document: wish.access == .readOnly ? .file : .directory, probe: probe)
            if wish.isOffered { try proposal.requireOfferable() }
            try ObeyedFiles.check(proposal.bookmark.path, access: wish.access)
            // A tool's own directories are what it needs.
            if wish.access == .readWrite, !wish.isOfTool, proposal.bookmark.document == nil {
                try request.checkWritable(proposal.bookmark.path)
            }
            let (identity, filesystem) = (proposal.bookmark.identity, proposal.bookmark.filesystem)
            if chosen.contains(where: { $0.proposal.bookmark.identity == identity && $0.proposal.bookmark.filesystem == filesystem }) {
                throw GrantError(
                    .alreadyExists, "“\(String(decoding: wish.path, as: UTF8.self))” is granted twice", advice: "leave one --grant out")
            }
            let name = try distinct(proposal.name, from: chosen.map(\.name))
            let rules = try request.rules.followed(by: wish.rules)
            chosen.append((proposal, name, wish.access, proposal.bookmark.document == nil ? rules : .none, wish.isOffered))
        }
        try checkNesting(chosen)
        return chosen
    }

    /// Adds the repositories of git worktrees and submodules, or says that there are some.
    private static func addRepositories(
        to chosen: inout [Chosen], _ isWanted: Bool, in store: String, _ probe: DirectoryProbe
    ) throws(GrantError) {
        var isFound = false
        for choice in chosen where choice.proposal.bookmark.document == nil {
            let path = choice.proposal.bookmark.path
            guard let link = GitLink(path) else { continue }
            isFound = true
            if !isWanted {
                if chosen.contains(where: { MountTable.path(link.place, isAtOrBelow: $0.proposal.bookmark.path) }) { continue }
                Terminal.note("“\(choice.name)” is a git worktree or submodule: git works in it with --worktree")
                continue
            }
            let (repository, inode) = try link.repository()
            if chosen.contains(where: { MountTable.path(repository, isAtOrBelow: $0.proposal.bookmark.path) }) { continue }
            // By way of the repository the program would reach what rules refuse in the directory.
            guard !chosen.contains(where: { MountTable.path($0.proposal.bookmark.path, isAtOrBelow: repository) }) else {
                throw GrantError(
                    .usage, "the repository of “\(VisibleText.of(path))” is not granted",
                    cause: "a directory of --grant lies in “\(VisibleText.of(repository))”", advice: "grant the repository alone")
            }
            let proposal = try GrantAdministrator.propose(directory: repository, name: nil, store: store, probe: probe)
            guard proposal.bookmark.path == repository, proposal.bookmark.identity.inode == inode else {
                throw GrantError(.invalidDirectory, "the repository of “\(VisibleText.of(path))” was moved meanwhile")
            }
            try ObeyedFiles.check(repository, access: choice.access)
            let name = try distinct(proposal.name, from: chosen.map(\.name))
            chosen.append((proposal, name, choice.access, try ToolProtection.ofRepository(), choice.isOffered))
        }
        if isWanted, !isFound {
            throw GrantError(
                .usage, "run: --worktree is for git worktrees and submodules", cause: "no directory of --grant has a file .git",
                advice: "leave it out")
        }
        try checkNesting(chosen)
    }

    /// Returns the name, with a number if it is taken.
    static func distinct(_ wanted: GrantName, from chosen: [GrantName]) throws(GrantError) -> GrantName {
        var (name, number) = (wanted, 1)
        while chosen.contains(name) {
            number += 1
            name = try numbered(wanted, number)
        }
        return name
    }

    /// Throws `.usage` if there are rules and no directory that they are for.
    private static func requireDirectory(_ chosen: [Chosen], _ request: SandboxRequest) throws(GrantError) {
        if request.rules.isEmpty || chosen.contains(where: { $0.proposal.bookmark.document == nil }) { return }
        throw GrantError(
            .usage, "run: --hide, --protect, --only and --protect-tools are for directories of --grant",
            cause: chosen.isEmpty ? "there is no --grant" : "only files are granted",
            advice: chosen.isEmpty ? "grantfs set NAME --hide PATTERN changes a grant of the view" : "leave them out")
    }

    /// Throws `.usage` if a grant gives less than one around it: the program would change its files
    /// by the outer path.
    private static func checkNesting(_ chosen: [Chosen]) throws(GrantError) {
        for offered in chosen where offered.isOffered {
            let path = offered.proposal.bookmark.path
            let other = chosen.first { other in
                let place = other.proposal.bookmark.path
                return place != path && (MountTable.path(place, isAtOrBelow: path) || MountTable.path(path, isAtOrBelow: place))
            }
            guard let other else { continue }
            throw GrantError(
                .usage, "“\(VisibleText.of(path))” cannot be offered",
                cause: "of it and “\(VisibleText.of(other.proposal.bookmark.path))” one lies in the other",
                advice: "grant or offer the outer one alone")
        }
        for inner in chosen where inner.access == .readOnly {
            let path = inner.proposal.bookmark.path
            let outer = chosen.first {
                $0.access == .readWrite && MountTable.path(path, isAtOrBelow: $0.proposal.bookmark.path)
            }
            guard let outer = outer?.proposal.bookmark.path else { continue }
            throw GrantError(
                .usage, "“\(String(decoding: path, as: UTF8.self))” cannot be granted read-only",
                cause: "it lies in “\(String(decoding: outer, as: UTF8.self))”, which is granted for writing",
                advice: "grant the directories beside it instead, or all of it read-only")
        }
    }

    /// Makes another name for one that is taken.
    static func numbered(_ name: GrantName, _ number: Int) throws(GrantError) -> GrantName {
        let ending = Array("-\(number)".utf8)
        guard let name = try? GrantName(entry: name.bytes.prefix(255 - ending.count) + ending) else {
            throw GrantError(.usage, "invalid grant name “\(name)”")
        }
        return name
    }

    /// Shows the directories at their own paths, where possible.
    private static func show(_ choices: [Chosen], in layout: inout SandboxLayout) {
        // Parent directories first, not in the given order.
        for choice in choices.sorted(by: { $0.proposal.bookmark.path.count < $1.proposal.bookmark.path.count }) {
            let path = choice.proposal.bookmark.path
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
        _ choices: [Chosen], to temporary: TemporaryMount, _ administrator: GrantAdministrator
    ) throws(GrantError) -> ViewName? {
        if choices.isEmpty { return nil }
        let view = try ParsedArguments.view(named: temporary.label)
        _ = try administrator.grant(
            choices.map { chosen in
                var choice = GrantAdministrator.Choice(
                    chosen.proposal, name: chosen.name, view: view, access: chosen.access, rules: chosen.rules)
                choice.isOffered = chosen.isOffered
                return choice
            })
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
