import GrantAdministration
import GrantModel
import GrantStore
import LinuxFS

/// `grantfs grant`
enum GrantCommand {
    static let declaration = CommandDeclaration(
        "grant", "Bookmarks a directory and grants it to a view; prints the grant's id.",
        operands: [OperandDeclaration("DIR")],
        options: [
            OptionDeclaration("view", value: "V", help: "the view; “default” when left out"),
            OptionDeclaration("name", value: "N", help: "the name in the view; the directory's own when left out"),
            OptionDeclaration("read-only", help: "nothing can be changed below the grant"),
            OptionDeclaration("expires", value: "WHEN", help: "when it ends by itself: 90s, 2h, 7d, or an ISO 8601 time"),
            OptionDeclaration("tag", help: "the directory gets a tag, an extended attribute by which a restored copy is recognised"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            "A tag never gives access by itself: a directory that carries the tag of a lost one is entered after grantfs confirm."
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let view = try arguments.view() ?? .standard
        let name = try arguments.name()
        let timeout = try arguments.timeout()
        var expires: Instant?
        if let text = try arguments.text("expires") { expires = try Expiry.parse(text, now: Instant(nanoseconds: Clock.realtime)) }
        let directory = try arguments.storeDirectory()
        let proposal = try GrantAdministrator.propose(directory: arguments.operands[0], name: name, store: directory, lookout: .command)

        let administrator = GrantAdministrator.command(try GrantStore(directory: directory, create: true))
        let access: Access = arguments.has("read-only") ? .readOnly : .readWrite
        let change = try administrator.grant(
            proposal, view: view, access: access, expires: expires, isTagged: arguments.has("tag"), timeout: timeout)
        if arguments.wantsJSON {
            let described = administrator.describe([change.grant])[0]
            try Terminal.print(JSON.object(JSON.grant(described) + [JSON.mounts(change)]).text)
        } else {
            try Terminal.print(change.grant.id.description)
        }
        return Confirmation.exitStatus(of: [change], "the grant", timeout: timeout)
    }
}
