/// Names one presenter in one table. Never used twice.
public struct PresenterID: Hashable, Sendable, Comparable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
    public static func < (one: PresenterID, other: PresenterID) -> Bool { one.rawValue < other.rawValue }
}

/// Names what presenters are asked together: for one claim, or before one revocation. Never used twice.
public struct RoundID: Hashable, Sendable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// What presenters are asked.
public enum PresenterQuestion: UInt8, Sendable, CaseIterable {
    case relinquishToReader = 1
    case relinquishToWriter
    case save
    case accommodateDeletion
    /// The grant is about to be withdrawn.
    case revocation

    var isRelinquishing: Bool { self == .relinquishToReader || self == .relinquishToWriter }
}

/// An item that is claimed, and what presenters of it are to do before.
public struct PresentedPart: Sendable {
    public var access: ItemAccess
    public var savesFirst: Bool
    public var isDeleting: Bool

    public init(_ access: ItemAccess, savesFirst: Bool = false, isDeleting: Bool = false) {
        self.access = access
        self.savesFirst = savesFirst
        self.isDeleting = isDeleting
    }
}

/// The presenters of one mount: who presents what, who is asked what, and until when that is waited for. No I/O, no clock, no lock: its owner has those.
///
/// The rules:
/// - Before a claim is granted those are asked whose item it overlaps, unless they have its purpose: each to step aside once, for a writer rather
///   than a reader; to save, where a part wants that; and for each part that is to be deleted.
/// - A round is over once, when every question that is waited for was answered, its presenter has gone, or its time is over.
/// - Who lets a time go by is asked from then on and not waited for, until it answers anything.
/// - Who has stepped aside, in time or not, is told when what it stepped aside for has ended.
public struct PresenterTable: Sendable {
    public struct Presenter: Sendable {
        public let id: PresenterID
        /// Claims of this purpose do not ask it; nil: all do.
        public let purpose: [UInt8]?
        /// nil while no grant leads there.
        public internal(set) var item: ClaimedItem?
        /// How long it may take to answer: nanoseconds.
        public let patience: Int64
        /// It has let a time go by and not answered since.
        public internal(set) var isLate = false
    }

    public struct Question: Sendable, Equatable {
        public let number: UInt64
        public let presenter: PresenterID
        public let kind: PresenterQuestion
        /// Which of the claim's parts it is about; 0 for a revocation.
        public let part: Int
        public let patience: Int64
    }

    /// What is to be asked now.
    public struct Round: Sendable {
        public let id: RoundID
        public let questions: [Question]
        /// Nobody is waited for.
        public let isOver: Bool
        /// Of those who are waited for.
        public let purposes: Set<[UInt8]>
    }

    /// Somebody whose answer is waited for no longer.
    public struct PassedOver: Sendable, Equatable {
        public let presenter: PresenterID
        public let kind: PresenterQuestion
        public init(presenter: PresenterID, kind: PresenterQuestion) { (self.presenter, self.kind) = (presenter, kind) }
    }

    public struct Effect: Sendable, Equatable {
        public var over: [RoundID] = []
        public var passedOver: [PassedOver] = []
        public init(over: [RoundID] = [], passedOver: [PassedOver] = []) { (self.over, self.passedOver) = (over, passedOver) }
    }

    struct LiveRound: Sendable {
        /// What is waited for, and until when.
        var open: [UInt64: (presenter: PresenterID, kind: PresenterQuestion, deadline: Int64)] = [:]
        var asked: Set<PresenterID> = []
        var aside: Set<PresenterID> = []
        var answered: Set<PresenterID> = []
        var isOver = false
    }

    public internal(set) var presenters: [PresenterID: Presenter] = [:]
    var rounds: [RoundID: LiveRound] = [:]
    var last: UInt64 = 0
    var lastQuestion: UInt64 = 0

    public init() {}

    // MARK: who presents what

    public mutating func add(_ item: ClaimedItem, purpose: [UInt8]?, patience: Int64) -> PresenterID {
        last += 1
        let id = PresenterID(rawValue: last)
        presenters[id] = Presenter(id: id, purpose: purpose, item: item, patience: patience)
        return id
    }

    /// What it presents is another one now, or lies elsewhere; nil when nothing leads there any more, and then nobody waits for it.
    public mutating func place(_ id: PresenterID, _ item: ClaimedItem?) -> Effect {
        guard presenters[id] != nil else { return Effect() }
        presenters[id]?.item = item
        return item == nil ? Effect(over: forget(id).over) : Effect()
    }

    /// It is gone. What it was asked comes back as passed over.
    public mutating func remove(_ id: PresenterID) -> Effect {
        guard presenters.removeValue(forKey: id) != nil else { return Effect() }
        return forget(id)
    }

    private mutating func forget(_ id: PresenterID) -> Effect {
        var effect = Effect()
        for (round, live) in rounds {
            let own = live.open.filter { $0.value.presenter == id }
            if own.isEmpty { continue }
            for number in own.keys { rounds[round]?.open[number] = nil }
            effect.passedOver += own.sorted { $0.key < $1.key }.map { PassedOver(presenter: id, kind: $0.value.kind) }
            end(round, &effect)
        }
        return effect
    }

    // MARK: asking

    /// What the presenters of a claim's items are to be asked; nil when there is nobody to ask.
    public mutating func ask(for parts: [PresentedPart], purpose: [UInt8]?, at now: Int64) -> Round? {
        var wanted: [(PresenterID, PresenterQuestion, Int)] = []
        for (id, presenter) in presenters.sorted(by: { $0.key < $1.key }) {
            guard let item = presenter.item, purpose == nil || presenter.purpose != purpose else { continue }
            let concerned = parts.indices.filter { parts[$0].access.item.overlaps(item) }
            guard let first = concerned.first else { continue }
            let writing = concerned.first { !parts[$0].access.use.isReading }
            wanted.append((id, writing == nil ? .relinquishToReader : .relinquishToWriter, writing ?? first))
            if let saving = concerned.first(where: { parts[$0].savesFirst }) { wanted.append((id, .save, saving)) }
            for part in concerned where parts[part].isDeleting { wanted.append((id, .accommodateDeletion, part)) }
        }
        return begin(wanted) { $0.isLate ? nil : now + $0.patience }
    }

    /// Tells presenters that they are about to lose their item, and asks them to save. All are waited for, those that were late before as well.
    public mutating func ask(beforeRevocation presenters: [PresenterID], until deadline: Int64) -> Round? {
        let known = presenters.filter { self.presenters[$0]?.item != nil }
        return begin(known.flatMap { [($0, .revocation, 0), ($0, .save, 0)] }) { _ in deadline }
    }

    private mutating func begin(
        _ wanted: [(PresenterID, PresenterQuestion, Int)], deadline: (Presenter) -> Int64?
    ) -> Round? {
        if wanted.isEmpty { return nil }
        last += 1
        let id = RoundID(rawValue: last)
        var (live, questions, purposes) = (LiveRound(), [Question](), Set<[UInt8]>())
        for (id, kind, part) in wanted {
            guard let presenter = presenters[id] else { continue }
            lastQuestion += 1
            questions.append(Question(number: lastQuestion, presenter: id, kind: kind, part: part, patience: presenter.patience))
            live.asked.insert(id)
            if kind.isRelinquishing { live.aside.insert(id) }
            guard let deadline = deadline(presenter) else { continue }
            live.open[lastQuestion] = (id, kind, deadline)
            if let purpose = presenter.purpose { purposes.insert(purpose) }
        }
        live.isOver = live.open.isEmpty
        rounds[id] = live
        return Round(id: id, questions: questions, isOver: live.isOver, purposes: purposes)
    }

    // MARK: answers

    /// What a presenter was asked, while its answer is waited for.
    public func kind(of question: UInt64, to id: PresenterID) -> PresenterQuestion? {
        rounds.values.lazy.compactMap { $0.open[question] }.first { $0.presenter == id }?.kind
    }

    /// An answer. One that comes twice, too late, or to what that presenter was never asked ends nothing.
    public mutating func answer(_ question: UInt64, by id: PresenterID) -> Effect {
        guard question > 0, question <= lastQuestion, presenters[id] != nil else { return Effect() }
        presenters[id]?.isLate = false
        guard let (round, _) = rounds.first(where: { $0.value.open[question]?.presenter == id }) else { return Effect() }
        rounds[round]?.open[question] = nil
        if rounds[round]?.open.values.contains(where: { $0.presenter == id }) == false { rounds[round]?.answered.insert(id) }
        var effect = Effect()
        end(round, &effect)
        return effect
    }

    /// When the next time is over; nil when nobody is waited for.
    public var nextDeadline: Int64? { rounds.values.flatMap { $0.open.values.map(\.deadline) }.min() }

    /// Passes over those whose time is over.
    public mutating func expire(at now: Int64) -> Effect {
        var effect = Effect()
        for (round, live) in rounds.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            let late = live.open.filter { $0.value.deadline <= now }.sorted { $0.key < $1.key }
            if late.isEmpty { continue }
            for (number, question) in late {
                rounds[round]?.open[number] = nil
                presenters[question.presenter]?.isLate = true
                effect.passedOver.append(PassedOver(presenter: question.presenter, kind: question.kind))
            }
            end(round, &effect)
        }
        return effect
    }

    private mutating func end(_ round: RoundID, _ effect: inout Effect) {
        guard let live = rounds[round], !live.isOver, live.open.isEmpty else { return }
        rounds[round]?.isOver = true
        effect.over.append(round)
    }

    /// The purposes of those who are still waited for.
    public func purposes(of round: RoundID) -> Set<[UInt8]> {
        Set(rounds[round]?.open.values.compactMap { presenters[$0.presenter]?.purpose } ?? [])
    }

    /// How many were asked, and how many of them have answered all.
    public func progress(of round: RoundID) -> (asked: Int, answered: Int) {
        rounds[round].map { ($0.asked.count, $0.answered.count) } ?? (0, 0)
    }

    /// Forgets a round: its claim has ended, or there is none any more. Gives those who have stepped aside for it and are still there.
    public mutating func end(_ round: RoundID) -> [PresenterID] {
        (rounds.removeValue(forKey: round)?.aside ?? []).filter { presenters[$0] != nil }.sorted()
    }
}
