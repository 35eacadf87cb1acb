import GrantModel

@testable import GrantControl

private let (one, other) = (sampleIDs[0], GrantID(high: 3, low: .max))
private let mark = EventMark(epoch: other, number: 5)

extension SessionRequest: Sampled {
    enum Name: String, CaseIterable { case claim, endClaim, moved, watch, present, endPresenting, answer, prepareRevocation }

    var name: Name {
        switch self {
        case .claim: .claim
        case .endClaim: .endClaim
        case .moved: .moved
        case .watch: .watch
        case .present: .present
        case .endPresenting: .endPresenting
        case .answer: .answer
        case .prepareRevocation: .prepareRevocation
        }
    }

    static func samples() -> [SessionRequest] {
        let items = ItemRequest.Intent.allCases.map {
            ItemRequest(path: [0x2F, 0xFF], isWriting: true, intent: $0, savesFirst: false, newPath: $0 == .moving ? [0x2F] : nil)
        }
        return [
            .claim(ClaimRequest(number: 7, id: one, claimant: other, purpose: [1, 0xFF], items: items, holdMilliseconds: .max)),
            .claim(ClaimRequest(number: 0, id: other, claimant: one, purpose: nil, items: [ItemRequest(path: [], isWriting: false)])),
            .claim(ClaimRequest(number: 0, id: one, claimant: one, purpose: [], items: [])), .endClaim(.max),
            .moved(claim: 1, from: [1], to: [2]), .watch(since: mark), .watch(since: nil),
            .present(PresentRequest(number: 1, path: [0xFF], purpose: [1], patienceMilliseconds: .max, since: mark)),
            .present(PresentRequest(number: 0, path: [], purpose: nil)), .endPresenting(3), .answer(question: .max, isDone: false),
            .answer(question: 0, isDone: true), .prepareRevocation(number: 1, id: one, grant: other, milliseconds: 30_000),
        ]
    }
}

extension SessionNews: Sampled {
    enum Name: String, CaseIterable {
        case granted, waits, refused, progress, tells, listening, presenting, notPresenting, asks, tellsPresenter, preparing
    }

    var name: Name {
        switch self {
        case .granted: .granted
        case .waits: .waits
        case .refused: .refused
        case .progress: .progress
        case .tells: .tells
        case .listening: .listening
        case .presenting: .presenting
        case .notPresenting: .notPresenting
        case .asks: .asks
        case .tellsPresenter: .tellsPresenter
        case .preparing: .preparing
        }
    }

    static func samples() -> [SessionNews] {
        let refusals = ClaimRefusal.allCases.map { SessionNews.refused(claim: 3, $0, text: "why") }
        let events = SessionEvent.Kind.allCases.map {
            SessionNews.tells(
                SessionEvent(
                    number: 1, time: Instant(nanoseconds: .min), kind: $0, path: [0xFE], newPath: $0 == .moved ? [2] : nil, pid: -1,
                    text: "å"))
        }
        let questions = PresenterAsk.Kind.allCases.map {
            SessionNews.asks(
                PresenterAsk(presenter: 1, question: .max, kind: $0, cause: other, path: [0xFF], pid: -1, milliseconds: 30_000))
        }
        let tellings = PresenterTelling.Kind.allCases.map {
            SessionNews.tellsPresenter(
                PresenterTelling(presenter: 1, event: 2, kind: $0, path: [1], newPath: $0 == .subitemMoved ? [0xFF] : nil))
        }
        let rest: [SessionNews] = [
            .granted(claim: 1, reach: [.reached, .outside, .revoked]), .granted(claim: 2, reach: []), .waits(claim: 2, pids: [1, -1]),
            .progress(claim: 4, stage: "flushing", done: 1, total: .max), .listening(mark: mark, hasMissed: true),
            .presenting(1, mark: mark, hasMissed: true), .notPresenting(2, .revoked, text: "å"),
            .preparing(1, asked: 2, answered: .max, isOver: true),
        ]
        return refusals + events + questions + tellings + rest
    }
}
