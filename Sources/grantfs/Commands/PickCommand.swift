import GrantCommandLine
import GrantCommandSupport
import GrantConsoles
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import GrantTerminal

/// `grantfs pick`
enum PickCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let view = try arguments.view() ?? .standard
        let timeout = try arguments.timeout()
        let start = arguments.operands.first.map { CanonicalPath.absolute($0) } ?? LastDirectory.read() ?? LastDirectory.home
        for (option, needed) in [("files", "desktop"), ("as-directory", "files")] where arguments.has(option) && !arguments.has(needed) {
            throw GrantError(.usage, "pick: --\(option) needs --\(needed)", advice: "grantfs grant FILE grants a file by its path")
        }
        let rules = try arguments.rules()
        if arguments.has("files"), !rules.isEmpty {
            throw GrantError(
                .usage, "pick: --files and rules do not go together", cause: "rules are for directories", advice: "leave one out")
        }
        let expiry = try arguments.text("expires")
        if let expiry { _ = try PickCommand.expiry(expiry) }
        if arguments.has("desktop") {
            return try DesktopPick(arguments: arguments, view: view, timeout: timeout, rules: rules).run(
                start: arguments.operands.isEmpty ? LastDirectory.read() : start)
        }
        let home = getenv("HOME").map { Array(String(cString: $0).utf8) }
        let picker = Picker(
            start: start, view: view, access: try arguments.access() ?? .readWrite, expiry: expiry,
            home: home?.first == UInt8(ascii: "/") ? home : nil
        ) { (text) throws(GrantError) in _ = try PickCommand.expiry(text) }
        let session = try PickerSession(picker, work: try work(arguments, timeout, rules))
        let changes: [GrantChange]?
        do {
            let screen = try Screen()
            changes = try session.run(on: screen)
            screen.close()
        }
        LastDirectory.write(session.directory)
        guard let changes else { return cancelled() }
        return try print(changes, arguments, timeout)
    }

    /// Counts from now.
    static func expiry(_ text: String) throws(GrantError) -> Instant {
        try Expiry.parse(text, now: Instant(nanoseconds: Clock.realtime))
    }

    /// How chosen files are shown, or nil if directories are chosen.
    static func form(_ arguments: ParsedArguments) -> DocumentBookmark.Form? {
        arguments.has("files") ? arguments.has("as-directory") ? .directory : .file : nil
    }

    static func cancelled() -> Int32 {
        Terminal.note("nothing was granted")
        return 1
    }

    /// Prints the grants as `grant` does.
    static func print(_ changes: [GrantChange], _ arguments: ParsedArguments, _ timeout: Double) throws(GrantError) -> Int32 {
        if arguments.wantsJSON {
            let described = GrantAdministrator.command(try arguments.openStore()).describe(changes.map(\.grant))
            let documents = zip(described, changes).map { JSON.object(JSON.grant($0) + [JSON.mounts($1)]) }
            try Terminal.print(JSON.array(documents).text)
        } else {
            for change in changes { try Terminal.print(change.grant.id.description) }
        }
        return Confirmation.exitStatus(of: changes, "the grant")
    }

    /// The store is created only when something is granted.
    private static func work(
        _ arguments: ParsedArguments, _ timeout: Double, _ rules: GrantRules
    ) throws(GrantError) -> PickerSession.Work {
        let directory = try arguments.storeDirectory()
        let placeholder: GrantName
        do { placeholder = try GrantName(entry: Array("picked".utf8)) } catch { throw GrantError(.system, error.rawValue) }
        var work = PickerSession.Work(
            list: { path throws(GrantError) in try DirectoryListing.of(path, probe: .command) },
            links: { $0.linksToDirectories(probe: .command) },
            propose: { path throws(GrantError) in
                let proposal = try GrantAdministrator.propose(
                    directory: path, name: placeholder, store: directory, document: .file, probe: .command)
                if let store = try arguments.openStoreIfThere() { try GrantAdministrator.command(store).check(proposal) }
                return proposal
            },
            taken: { () throws(GrantError) in
                try arguments.openStoreIfThere()?.grants().map { PickerChoice.Slot(view: $0.view, name: $0.name) } ?? []
            },
            grant: { choices throws(GrantError) in
                let store = try GrantStore(directory: directory, create: true)
                var choices = choices
                for index in choices.indices { choices[index].rules = rules }
                return try GrantAdministrator.command(store).grant(choices, timeout: timeout)
            })
        work.expiry = { text throws(GrantError) in try expiry(text) }
        work.granted = { () throws(GrantError) in
            let now = Instant(nanoseconds: Clock.realtime)
            var places: [[UInt8]: [ViewName]] = [:]
            for grant in try arguments.openStoreIfThere()?.grants() ?? [] where grant.state(at: now) == .active {
                places[grant.bookmark.path, default: []].append(grant.view)
            }
            return places
        }
        return work
    }
}
