import GrantCommandSupport
import GrantModel
import GrantSystem

/// A question as a form that the client shows to the person (elicitation), and the person's answer in it.
struct MCPForm {
    private static let refused = "no"
    let question: MCPQuestion

    /// The parameters of `elicitation/create`.
    var parameters: JSON {
        let decision: [(String, JSON)] = [
            ("type", .string("string")), ("title", .string("Decision")),
            ("description", .string("“no”, or the access that the program gets")),
            ("enum", .array(choices.map { .string($0) })),
        ]
        return .object([
            ("message", .string(question.text(columns: 1000))),
            (
                "requestedSchema",
                .object([
                    ("type", .string("object")), ("properties", .object([("decision", .object(decision))])),
                    ("required", .array([.string("decision")])),
                ])
            ),
        ])
    }

    private var choices: [String] {
        [Self.refused, Access.readOnly.rawValue] + (question.access == .readWrite ? [Access.readWrite.rawValue] : [])
    }

    /// Interprets a result of `elicitation/create`. A malformed one is a refusal.
    func answer(_ result: JSON?) -> MCPAsking.Answer {
        switch result?.member("action")?.stringValue {
        case "decline": return .no("the person said no")
        case "cancel": return .no("the person closed the question")
        case "accept": break
        default: return .no("the client's answer makes no sense")
        }
        guard let decision = result?.member("content")?.member("decision")?.stringValue, choices.contains(decision) else {
            return .no("the client's answer makes no sense")
        }
        guard let access = Access(rawValue: decision) else { return .no("the person said no") }
        return .yes(question.path, access)
    }
}

/// Questions that clients put to the person between two requests, each to be answered once.
struct MCPOpenQuestions {
    struct Question {
        let request: MCPRequest
        /// The directory at the path when the question was asked.
        let bookmark: Bookmark
        fileprivate let state: String
        fileprivate let end: Int64
    }

    /// So many may be open. The oldest ends when there is one more.
    private static let most = 16
    private var questions: [Question] = []

    /// Returns the state by which the client answers. It cannot be guessed.
    mutating func add(_ request: MCPRequest, _ bookmark: Bookmark) -> String {
        if questions.count == Self.most { questions.removeFirst() }
        let state = GrantID.random().description
        questions.append(
            Question(request: request, bookmark: bookmark, state: state, end: Clock.monotonic + MCPAsking.clientPatience))
        return state
    }

    /// Ends a question. The result is nil if it is not open any more.
    mutating func take(_ state: String) -> Question? {
        questions.removeAll { $0.end < Clock.monotonic }
        guard let index = questions.firstIndex(where: { $0.state == state }) else { return nil }
        return questions.remove(at: index)
    }
}
