import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantSystem

extension MCPServer {
    /// Returns nil if the call was cancelled.
    func call(_ parameters: JSON, _ call: MCPCall) throws(MCPError) -> JSON? {
        guard let name = parameters.member("name")?.stringValue, let tool = MCPTool(rawValue: name) else {
            throw .invalid("there is no tool of that name")
        }
        let given = parameters.member("arguments") ?? .object([])
        guard case .object(let members) = given else { throw .invalid("“arguments” is an object") }
        let unknown = members.first { member in !tool.properties.contains { $0.name == member.0 } }
        if let unknown { throw .invalid("unknown argument “\(unknown.0)” of \(name)") }
        let arguments = MCPArguments(given)
        do throws(GrantError) {
            switch tool {
            case .request: return try request(arguments, call)
            case .extend: return try extend(arguments, call)
            case .narrow: return try narrow(arguments)
            case .release:
                let released = try grants.release(try named(arguments))
                return content("Released: \(line(released))", released.json)
            case .list:
                let all = try grants.all()
                let text = all.isEmpty ? "Nothing is granted." : all.map { line($0) }.joined(separator: "\n")
                return content(text, .object([("directories", .array(all.map(\.json)))]))
            case .explain:
                let explanation = try grants.explanation(of: try arguments.absolutePath())
                return content(explanation.text, explanation.json)
            }
        } catch {
            // An error that a model may read and correct is not a protocol error.
            if error.code == .usage { throw .invalid(error.description) }
            return refusal(error.description)
        }
    }

    // MARK: results

    private func line(_ shown: MCPGrants.Shown) -> String {
        let end = shown.grant.expires.map { " until \(Timestamp.text($0))" } ?? ""
        return "\(Terminal.visible(shown.place)) (\(shown.grant.access.rawValue) of \(Terminal.visible(shown.directory))\(end))"
    }

    private func content(_ text: String, _ structured: JSON) -> JSON {
        .object([
            ("content", .array([.object([("type", .string("text")), ("text", .string(text))])])), ("structuredContent", structured),
            ("isError", .bool(false)),
        ])
    }

    private func refusal(_ text: String) -> JSON {
        .object([("content", .array([.object([("type", .string("text")), ("text", .string(text))])])), ("isError", .bool(true))])
    }

    private var denied: JSON { refusal("Not granted: the policy denies it.") }

    private func refusal(of place: GrantRules.Place?, _ access: Access) -> JSON? {
        guard let place else { return denied }
        if place.isProtected, access == .readWrite { return refusal("Not granted: the policy protects it. It can be read-only.") }
        return nil
    }

    // MARK: tools

    private func named(_ arguments: MCPArguments) throws(GrantError) -> MCPGrants.Shown {
        let word = try arguments.path()
        return try grants.named(word, directory: CanonicalPath.resolveWhatExists(CanonicalPath.plain(MCPArguments.expanded(word))))
    }

    private func request(_ arguments: MCPArguments, _ call: MCPCall) throws(GrantError) -> JSON? {
        let wanted = MCPRequest(
            path: try arguments.absolutePath(), access: try arguments.access() ?? .readOnly, duration: try arguments.duration(),
            reason: try arguments.reason(), rules: try arguments.rules())
        _ = try grants.rules.narrowed(by: wanted.rules)
        // Denied before the client can learn whether it exists, or where its links lead.
        if try isDenied(wanted.path, wanted.access) { return denied }
        // The client may have made a link, so denied and missing targets get the same answer.
        guard let path = try? CanonicalPath.resolve(wanted.path), try !isDenied(path, wanted.access) else {
            return refusal("Not granted: there is no such directory, or the policy denies it.")
        }
        let proposal = try grants.look(at: wanted.path, for: wanted.access)
        if let shown = try grants.existing(proposal), wanted.access == .readOnly || shown.grant.access == .readWrite {
            return content("Granted already: \(line(shown))", shown.json)
        }
        if let (shown, below) = try grants.containing(proposal, wanted.access) {
            if let refused = refusal(of: try shown.grant.rules.place(at: below), wanted.access) { return refused }
            return content("Granted already: \(line(shown))", shown.json)
        }
        return try decide(wanted, proposal, call)
    }

    private func extend(_ arguments: MCPArguments, _ call: MCPCall) throws(GrantError) -> JSON? {
        let shown = try named(arguments)
        let wanted = MCPRequest(
            path: shown.directory, access: shown.grant.access, duration: try arguments.duration(), reason: try arguments.reason(),
            rules: .none, extended: shown.grant.id)
        guard let end = shown.grant.expires else { return content("It lasts until this session ends: \(line(shown))", shown.json) }
        if let expires = try wanted.expires, expires <= end {
            throw GrantError(.usage, "it lasts longer already", advice: "narrow_directory makes it shorter")
        }
        let proposal = try grants.look(at: wanted.path, for: wanted.access)
        guard proposal.bookmark.identity == shown.grant.bookmark.identity else {
            throw GrantError(.invalidDirectory, "the directory was moved")
        }
        return try decide(wanted, proposal, call)
    }

    private func narrow(_ arguments: MCPArguments) throws(GrantError) -> JSON {
        let shown = try named(arguments)
        let expires = try arguments.duration().map { (text) throws(GrantError) in try Expiry.after(text, now: GrantAdministrator.now) }
        let narrowed = try grants.narrow(shown, try arguments.access(), try arguments.rules(), until: expires)
        return content("Narrowed: \(line(narrowed))", narrowed.json)
    }

    private func isDenied(_ path: [UInt8], _ access: Access) throws(GrantError) -> Bool {
        if policy.verdict(on: path, access) == .denied { return true }
        return try grants.place(path) == nil
    }

    // MARK: decisions

    /// Lets the policy or a person decide. Returns nil if the call was cancelled.
    private func decide(_ wanted: MCPRequest, _ proposal: GrantAdministrator.Proposal, _ call: MCPCall) throws(GrantError) -> JSON? {
        let found = proposal.bookmark.path
        // A person who changed it decides again, even if the policy allows it.
        let wasTakenBack = try grants.wasTakenBack(proposal.bookmark)
        switch policy.verdict(on: found, wanted.access) {
        case .denied: return denied
        case .allowed where !wasTakenBack && !grants.wasOftenReleased(proposal.bookmark):
            return try grant(wanted, proposal, wanted.access, isDecided: false)
        case .allowed where means == .never:
            return refusal("Not granted: a person has changed or taken it back in this session, or it was released too often.")
        case .allowed, .toBeAsked:
            // Before a person is asked in vain.
            if let refused = refusal(of: try grants.place(found), wanted.access) { return refused }
        }
        let question = MCPQuestion(
            client: call.client.name, path: found, access: wanted.access, duration: wanted.duration, reason: wanted.reason)
        if call.client.isStateless, means.of(call.client) == .client { return try askBetweenRequests(question, wanted, proposal, call) }
        var passed: Int64 = 0
        let asking = MCPAsking(means: means.of(call.client), question: question, reader: reader, send: { try? self.output($0) }) {
            seconds in
            guard let token = call.progress else { return }
            passed += seconds
            try? self.output(self.progress(token, passed))
        }
        let answer = asking.ask(lines) { serveMeanwhile($0, asking: call.id) }
        return try conclude(answer, wanted, proposal.bookmark)
    }

    /// Asks through a client with stateless requests, which repeats the call with the answer.
    private func askBetweenRequests(
        _ question: MCPQuestion, _ wanted: MCPRequest, _ proposal: GrantAdministrator.Proposal, _ call: MCPCall
    ) throws(GrantError) -> JSON? {
        let form = MCPForm(question: question)
        guard let state = call.state else {
            let asked = JSON.object([("method", .string("elicitation/create")), ("params", form.parameters)])
            return .object([
                ("resultType", .string("input_required")), ("inputRequests", .object([("decision", asked)])),
                ("requestState", .string(questions.add(wanted, proposal.bookmark))),
            ])
        }
        guard let open = questions.take(state), open.request == wanted else {
            return refusal("Not granted: the question is not open any more, or was about something else. Ask again.")
        }
        guard proposal.bookmark.path == open.bookmark.path, MCPGrants.areSame(proposal.bookmark, open.bookmark) else {
            return refusal("Not granted: another directory is there than when the person was asked.")
        }
        return try conclude(form.answer(call.responses?.member("decision")), wanted, open.bookmark)
    }

    /// - Parameter shown: What the person was shown.
    private func conclude(_ answer: MCPAsking.Answer, _ wanted: MCPRequest, _ shown: Bookmark) throws(GrantError) -> JSON? {
        switch answer {
        case .cancelled: return nil
        case .no(let why): return refusal("Not granted: \(why).")
        case .yes(let chosen, let access):
            // It may be another directory, or exchanged by now: what the person was shown counts.
            let final = try grants.look(at: chosen, for: access)
            guard chosen != shown.path || MCPGrants.areSame(final.bookmark, shown) else {
                return refusal("Not granted: another directory is there than when the person was asked.")
            }
            if policy.verdict(on: final.bookmark.path, access) == .denied { return denied }
            return try grant(wanted, final, access, isDecided: true)
        }
    }

    private func grant(
        _ wanted: MCPRequest, _ proposal: GrantAdministrator.Proposal, _ access: Access, isDecided: Bool
    ) throws(GrantError) -> JSON {
        let place = try grants.place(proposal.bookmark.path)
        if let refused = refusal(of: place, access) { return refused }
        guard let place else { return denied }
        let expires = try wanted.expires
        if let extended = wanted.extended {
            let shown = try grants.extend(extended, proposal, access, until: expires, isDecided: isDecided)
            return content("Extended: \(line(shown))", shown.json)
        }
        let rules = try place.rules.narrowed(by: wanted.rules)
        let shown = try grants.grant(proposal, access, rules, until: expires, isDecided: isDecided)
        return content("Granted: \(line(shown))", shown.json)
    }

    private func progress(_ token: JSON, _ passed: Int64) -> JSON {
        .object([
            ("jsonrpc", .string("2.0")), ("method", .string("notifications/progress")),
            (
                "params",
                .object([
                    ("progressToken", token), ("progress", .integer(passed)), ("message", .string("waiting for a person's decision")),
                ])
            ),
        ])
    }
}
