// Saves a table, and restores it in another process.
extension PresenterTable {
    /// The complete state of a table.
    public struct Contents: Sendable {
        public struct Round: Sendable {
            public var id: RoundID
            public var open: [(question: UInt64, presenter: PresenterID, kind: PresenterQuestion, deadline: Int64)]
            public var asked: Set<PresenterID>
            public var aside: Set<PresenterID>
            public var answered: Set<PresenterID>
            public var isOver: Bool

            public init(
                id: RoundID, open: [(question: UInt64, presenter: PresenterID, kind: PresenterQuestion, deadline: Int64)],
                asked: Set<PresenterID>,
                aside: Set<PresenterID>, answered: Set<PresenterID>, isOver: Bool
            ) {
                (self.id, self.open, self.asked, self.aside, self.answered, self.isOver) = (id, open, asked, aside, answered, isOver)
            }
        }

        public var presenters: [Presenter]
        public var rounds: [Round]
        public var last: UInt64
        public var lastQuestion: UInt64

        public init(presenters: [Presenter], rounds: [Round], last: UInt64, lastQuestion: UInt64) {
            (self.presenters, self.rounds, self.last, self.lastQuestion) = (presenters, rounds, last, lastQuestion)
        }
    }

    public var contents: Contents {
        let rounds = rounds.map { id, live in
            Contents.Round(
                id: id,
                open: live.open.map { (question: $0.key, presenter: $0.value.presenter, kind: $0.value.kind, deadline: $0.value.deadline) },
                asked: live.asked, aside: live.aside, answered: live.answered, isOver: live.isOver)
        }
        return Contents(presenters: Array(presenters.values), rounds: rounds, last: last, lastQuestion: lastQuestion)
    }

    public init(_ contents: Contents) {
        (last, lastQuestion) = (contents.last, contents.lastQuestion)
        for presenter in contents.presenters { presenters[presenter.id] = presenter }
        for round in contents.rounds {
            var live = LiveRound()
            for one in round.open { live.open[one.question] = (one.presenter, one.kind, one.deadline) }
            (live.asked, live.aside, live.answered, live.isOver) = (round.asked, round.aside, round.answered, round.isOver)
            rounds[round.id] = live
        }
    }
}

extension PresenterTable.Presenter {
    public init(restored id: PresenterID, purpose: [UInt8]?, item: ClaimedItem?, patience: Int64, isLate: Bool) {
        (self.id, self.purpose, self.item, self.patience, self.isLate) = (id, purpose, item, patience, isLate)
    }
}
