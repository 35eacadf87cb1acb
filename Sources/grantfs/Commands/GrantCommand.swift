import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs grant`
enum GrantCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        try arguments.refuseFleetOptions()
        let timeout = try arguments.timeout()
        let directory = try arguments.storeDirectory()
        let choices = try choices(arguments, store: directory)
        let administrator = GrantAdministrator.command(try GrantStore(directory: directory, create: true))
        var existing: [Grant] = []
        for choice in choices {
            try administrator.check(choice.proposal)
            if let grant = try administrator.existing(choice) { existing.append(grant) }
        }
        let new = choices.filter { choice in !existing.contains { $0.name == choice.name } }
        let made = new.isEmpty ? [] : try administrator.grant(new, timeout: timeout)
        // Nothing changes for them, but mounts that have not confirmed them are asked again.
        let left = existing.isEmpty ? [] : try administrator.restore(existing, timeout: timeout)
        let changes = choices.compactMap { choice in (made + left).first { $0.grant.name == choice.name } }
        if arguments.wantsJSON {
            let described = administrator.describe(changes.map(\.grant))
            let documents = zip(described, changes).map { JSON.object(JSON.grant($0) + [JSON.mounts($1)]) }
            try Terminal.print(arguments.operands.count == 1 ? documents[0].text : JSON.array(documents).text)
        } else {
            for change in changes { try Terminal.print(change.grant.id.description) }
        }
        for grant in existing { Terminal.note("“\(grant.name)” is granted to the view “\(grant.view)” already, in the same way") }
        for change in made {
            let others = try administrator.overlaps(with: change.grant, view: change.grant.view)
            if let text = OverlapText.beside(change.grant, others) { Terminal.note(text) }
        }
        return Confirmation.exitStatus(of: changes, "the grant")
    }

    /// Returns the requested grants, each directory once. It writes nothing.
    private static func choices(_ arguments: ParsedArguments, store: String) throws(GrantError) -> [GrantAdministrator.Choice] {
        let view = try arguments.view() ?? .standard
        let name = try arguments.name()
        if name != nil, arguments.operands.count > 1 {
            throw GrantError(.usage, "--name is for one directory", advice: "grant them one at a time, or leave --name out")
        }
        var expires: Instant?
        if let text = try arguments.text("expires") { expires = try Expiry.parse(text, now: Instant(nanoseconds: Clock.realtime)) }
        let rules = try arguments.rules()
        var choices: [GrantAdministrator.Choice] = []
        let form = arguments.has("as-directory") ? DocumentBookmark.Form.directory : .file
        for word in arguments.operands {
            let (operand, access) = try arguments.marked(word)
            let proposal = try GrantAdministrator.propose(
                directory: operand, name: name, store: store, document: form, probe: .command)
            if form == .directory, proposal.bookmark.document == nil {
                throw GrantError(
                    .usage, "“\(String(decoding: operand, as: UTF8.self))” is a directory, and --as-directory is for files",
                    advice: "leave --as-directory out")
            }
            try rules.requireDirectory(proposal.bookmark)
            if let other = choices.first(where: { $0.name == proposal.name }) {
                if other.proposal.bookmark.identity == proposal.bookmark.identity { continue }
                throw GrantError(
                    .usage, "two of the directories are called “\(proposal.name)”", advice: "grant one of them by itself, with --name")
            }
            var choice = GrantAdministrator.Choice(
                proposal, name: proposal.name, view: view, access: access,
                expires: expires, isTagged: arguments.has("tag"), rules: rules)
            choice.isOffered = arguments.has("offered")
            if choice.isOffered { try proposal.requireOfferable() }
            choices.append(choice)
        }
        return choices
    }
}
