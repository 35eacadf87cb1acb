/// Identifies a presenter in its table. Never reused.
public struct PresenterID: Hashable, Sendable, Comparable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
    public static func < (one: PresenterID, other: PresenterID) -> Bool { one.rawValue < other.rawValue }
}

/// Identifies a round of questions. Never reused.
///
/// They belong to one claim, or precede one revocation.
public struct RoundID: Hashable, Sendable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// A question to a presenter.
public enum PresenterQuestion: UInt8, Sendable, CaseIterable {
    case relinquishToReader = 1
    case relinquishToWriter
    case save
    case accommodateDeletion
    /// The grant is about to be revoked.
    case revocation

    var isRelinquishing: Bool { self == .relinquishToReader || self == .relinquishToWriter }
}

/// A claimed item, and the steps that its presenters must take first.
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

/// The presenters of one mount, their items, and the open questions with deadlines.
///
/// Pure value without I/O, clock or lock: its owner has those. The rules:
/// - Before a claim is granted, presenters of overlapping items are asked, except those of the
///   claim's own purpose. They are asked once to relinquish (to a writer rather than to a reader),
///   to save if a part needs that, and for each part that will be deleted.
/// - A round is over when every open question was answered, expired, or lost its presenter.
/// - A presenter that missed a deadline is still asked. Rounds do not wait for it until it answers
///   any question.
/// - A presenter that relinquished, in time or not, is told when the claim has ended.
public struct PresenterTable: Sendable {
    public struct Presenter: Sendable {
        public let id: PresenterID
        /// Claims of this purpose do not ask it. nil means that every claim does.
        public let purpose: [UInt8]?
        /// nil while no grant leads there.
        public internal(set) var item: ClaimedItem?
        /// Its timeout for an answer, in nanoseconds.
        public let patience: Int64
        /// It missed a deadline and has not answered since.
        public internal(set) var isLate = false
    }

    public struct Question: Sendable, Equatable {
        public let number: UInt64
        public let presenter: PresenterID
        public let kind: PresenterQuestion
        /// The index of the claim's part in question. 0 for a revocation.
        public let part: Int
        public let patience: Int64
    }

    /// A new round of questions.
    public struct Round: Sendable {
        public let id: RoundID
        public let questions: [Question]
        /// Whether the round waits for no answer.
        public let isOver: Bool
        /// The purposes of the presenters whose answers the round waits for.
        public let purposes: Set<[UInt8]>
    }

    /// A presenter whose answer the round no longer waits for.
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
        /// Open questions with their deadlines.
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

    // MARK: presenters and their items

    public mutating func add(_ item: ClaimedItem, purpose: [UInt8]?, patience: Int64) -> PresenterID {
        last += 1
        let id = PresenterID(rawValue: last)
        presenters[id] = Presenter(id: id, purpose: purpose, item: item, patience: patience)
        return id
    }

    /// Updates the item that a presenter presents.
    ///
    /// nil means that no grant leads there any more, which closes its open questions.
    public mutating func place(_ id: PresenterID, _ item: ClaimedItem?) -> Effect {
        guard presenters[id] != nil else { return Effect() }
        presenters[id]?.item = item
        return item == nil ? Effect(over: forget(id).over) : Effect()
    }

    /// Removes a presenter. Its open questions are returned as passed over.
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

    /// Starts the round for a claim's items. Returns nil if there is no presenter to ask.
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

    /// Starts the round before a revocation: presenters are told and asked to save.
    ///
    /// Waits for all, even those that missed a deadline before.
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

    /// The kind of an open question.
    public func kind(of question: UInt64, to id: PresenterID) -> PresenterQuestion? {
        rounds.values.lazy.compactMap { $0.open[question] }.first { $0.presenter == id }?.kind
    }

    /// Records an answer. A duplicate, late or foreign answer ends nothing.
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

    /// The next deadline. It is nil if no question is open.
    public var nextDeadline: Int64? { rounds.values.flatMap { $0.open.values.map(\.deadline) }.min() }

    /// Passes over presenters whose deadline has passed.
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

    /// The purposes of presenters with open questions.
    public func purposes(of round: RoundID) -> Set<[UInt8]> {
        Set(rounds[round]?.open.values.compactMap { presenters[$0.presenter]?.purpose } ?? [])
    }

    /// How many presenters were asked, and how many have answered everything.
    public func progress(of round: RoundID) -> (asked: Int, answered: Int) {
        rounds[round].map { ($0.asked.count, $0.answered.count) } ?? (0, 0)
    }

    /// Removes a round, since its claim has ended.
    ///
    /// Returns the presenters that relinquished for it and still exist.
    public mutating func end(_ round: RoundID) -> [PresenterID] {
        (rounds.removeValue(forKey: round)?.aside ?? []).filter { presenters[$0] != nil }.sorted()
    }
}
