import GrantModel

extension SessionRequest: WireMessage {
    package static let cases: [WireCase<SessionRequest>] = [
        WireCase(1, claim) { if case .claim(let claim) = $0 { claim } else { nil } },
        WireCase(2, endClaim) { if case .endClaim(let number) = $0 { number } else { nil } },
        WireCase(3, moved) { if case .moved(let claim, let from, let to) = $0 { (claim, from, to) } else { nil } },
        WireCase(4, watch) { if case .watch(let since) = $0 { .some(since) } else { nil } },
        WireCase(5, present) { if case .present(let presenter) = $0 { presenter } else { nil } },
        WireCase(6, endPresenting) { if case .endPresenting(let number) = $0 { number } else { nil } },
        WireCase(7, answer) { if case .answer(let question, let isDone) = $0 { (question, isDone) } else { nil } },
        WireCase(8, prepareRevocation) {
            if case .prepareRevocation(let number, let id, let grant, let time) = $0 { (number, id, grant, time) } else { nil }
        },
    ]
}

extension SessionNews: WireMessage {
    package static let cases: [WireCase<SessionNews>] = [
        WireCase(1, granted) { if case .granted(let claim, let reach) = $0 { (claim, reach) } else { nil } },
        WireCase(2, waits) { if case .waits(let claim, let pids) = $0 { (claim, pids) } else { nil } },
        WireCase(3, refused) { if case .refused(let claim, let refusal, let text) = $0 { (claim, refusal, text) } else { nil } },
        WireCase(4, progress) {
            if case .progress(let claim, let stage, let done, let total) = $0 { (claim, stage, done, total) } else { nil }
        },
        WireCase(5, tells) { if case .tells(let event) = $0 { event } else { nil } },
        WireCase(6, listening) { if case .listening(let mark, let hasMissed) = $0 { (mark, hasMissed) } else { nil } },
        WireCase(7, presenting) {
            if case .presenting(let number, let mark, let hasMissed) = $0 { (number, mark, hasMissed) } else { nil }
        },
        WireCase(8, notPresenting) {
            if case .notPresenting(let number, let refusal, let text) = $0 { (number, refusal, text) } else { nil }
        },
        WireCase(9, asks) { if case .asks(let question) = $0 { question } else { nil } },
        WireCase(10, tellsPresenter) { if case .tellsPresenter(let telling) = $0 { telling } else { nil } },
        WireCase(11, preparing) {
            if case .preparing(let number, let asked, let answered, let isOver) = $0 { (number, asked, answered, isOver) } else { nil }
        },
    ]
}

extension ClaimRequest: WireRecord {
    package static let fields = WireFields(ClaimRequest.init(number:id:claimant:purpose:items:holdMilliseconds:)) {
        ($0.number, $0.id, $0.claimant, $0.purpose, $0.items, $0.holdMilliseconds)
    }
}

extension ItemRequest: WireRecord {
    package static let fields = WireFields(ItemRequest.init(path:isWriting:intent:savesFirst:newPath:)) {
        ($0.path, $0.isWriting, $0.intent, $0.savesFirst, $0.newPath)
    }
}

extension EventMark: WireRecord {
    package static let fields = WireFields(EventMark.init(epoch:number:)) { ($0.epoch, $0.number) }
}

extension SessionEvent: WireRecord {
    package static let fields = WireFields(SessionEvent.init(number:time:kind:path:newPath:pid:text:)) {
        ($0.number, $0.time, $0.kind, $0.path, $0.newPath, $0.pid, $0.text)
    }
}

extension PresentRequest: WireRecord {
    package static let fields = WireFields(PresentRequest.init(number:path:purpose:patienceMilliseconds:since:)) {
        ($0.number, $0.path, $0.purpose, $0.patienceMilliseconds, $0.since)
    }
}

extension PresenterAsk: WireRecord {
    package static let fields = WireFields(PresenterAsk.init(presenter:question:kind:cause:path:pid:milliseconds:)) {
        ($0.presenter, $0.question, $0.kind, $0.cause, $0.path, $0.pid, $0.milliseconds)
    }
}

extension PresenterTelling: WireRecord {
    package static let fields = WireFields(PresenterTelling.init(presenter:event:kind:path:newPath:)) {
        ($0.presenter, $0.event, $0.kind, $0.path, $0.newPath)
    }
}

extension ItemRequest.Intent: WireValue {}
extension ItemReach: WireValue {}
extension ClaimRefusal: WireValue {}
extension SessionEvent.Kind: WireValue {}
extension PresenterAsk.Kind: WireValue {}
extension PresenterTelling.Kind: WireValue {}
