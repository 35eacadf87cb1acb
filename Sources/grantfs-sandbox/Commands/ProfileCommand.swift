import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore

/// `grantfs profile`
enum ProfileCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        guard let store = try arguments.openStoreIfThere() else {
            throw GrantError(.notFound, "there is no run: there is no store yet", advice: "grantfs run --learn … -- PROGRAM makes one")
        }
        let prefix = Array("run-".utf8)
        let word = arguments.operands.first.map { $0.starts(with: prefix) ? $0 : prefix + $0 }
        if let word, !RunReport.isName(word) {
            throw GrantError(
                .usage, "“\(VisibleText.of(arguments.operands[0]))” is not a run",
                advice: "its id as in the last line of grantfs run, or its beginning")
        }
        let proposal = try ProfileProposal(try RunReport.find(word, in: store), GrantAdministrator.command(store))
        try Terminal.print(proposal.text, terminator: "")
        return proposal.isEmpty ? 1 : 0
    }
}
