import GrantCoordinator
import TestSupport
import Testing

extension PresenterTable {
    fileprivate mutating func add(_ path: String, purpose: String? = nil, patience: Int64 = 5) -> PresenterID {
        add(item(path), purpose: purpose.map { Array($0.utf8) }, patience: patience)
    }

    fileprivate mutating func ask(
        _ path: String, _ use: ItemUse, saves: Bool = false, deletes: Bool = false, purpose: String? = nil, at now: Int64 = 0
    ) -> Round? {
        ask(
            for: [PresentedPart(ItemAccess(item(path), use), savesFirst: saves, isDeleting: deletes)],
            purpose: purpose.map { Array($0.utf8) }, at: now)
    }
}

/// What `#require` does, with a value that was made by a change.
private func required(_ round: PresenterTable.Round?) throws -> PresenterTable.Round { try #require(round) }

@Suite struct APresenterTable {
    @Test("A claim asks each presenter of the item, its parents and its children once")
    func concerned() throws {
        var table = PresenterTable()
        let (above, own, below, beside) = (table.add("a"), table.add("a/b"), table.add("a/b/c"), table.add("a/d"))
        let round = try required(table.ask("a/b", .readContent, saves: true))
        #expect(round.questions.map(\.presenter) == [above, above, own, own, below, below])
        #expect(round.questions.map(\.kind) == [.relinquishToReader, .save, .relinquishToReader, .save, .relinquishToReader, .save])
        let both = [
            PresentedPart(ItemAccess(item("a/d"), .readContent), savesFirst: true),
            PresentedPart(ItemAccess(item("a/d"), .displace), isDeleting: true),
        ]
        let batch = try required(table.ask(for: both, purpose: nil, at: 0))
        #expect(batch.questions.filter { $0.presenter == beside }.map(\.kind) == [.relinquishToWriter, .save, .accommodateDeletion])
        #expect(batch.questions.filter { $0.presenter == beside }.map(\.part) == [1, 0, 1])
        let none = table.ask("x", .writeContent)
        #expect(none == nil)
    }

    @Test("A claim does not ask presenters of its own purpose or without a grant")
    func exempt() throws {
        var table = PresenterTable()
        let (one, other) = (table.add("a", purpose: "p"), table.add("a"))
        #expect(table.ask("a", .writeContent, purpose: "p")?.questions.map(\.presenter) == [other])
        _ = table.place(other, nil)
        let nobody = table.ask("a", .writeContent, purpose: "p")
        #expect(nobody == nil)
        let round = try required(table.ask("a", .writeContent))
        #expect(round.questions.map(\.presenter) == [one] && round.purposes == [Array("p".utf8)])
        _ = table.place(other, item("a"))
        #expect(table.ask("a", .writeContent)?.questions.map(\.presenter) == [one, other])
    }

    @Test("A round of questions ends once, with the last answer")
    func answers() throws {
        var table = PresenterTable()
        let (one, other) = (table.add("a"), table.add("a"))
        let round = try required(table.ask("a", .readContent, saves: true))
        let numbers = round.questions.map(\.number)
        #expect(table.answer(numbers[0], by: other) == .init())
        #expect(table.kind(of: numbers[0], to: one) == .relinquishToReader && table.kind(of: numbers[0], to: other) == nil)
        #expect(table.answer(numbers[0], by: one) == .init() && table.answer(numbers[0], by: one) == .init())
        #expect(table.progress(of: round.id) == (2, 0))
        #expect(table.answer(numbers[1], by: one) == .init())
        #expect(table.progress(of: round.id) == (2, 1))
        #expect(table.answer(numbers[2], by: other) == .init())
        #expect(table.answer(numbers[3], by: other) == .init(over: [round.id]))
        #expect(table.answer(numbers[3], by: other) == .init() && table.answer(99, by: other) == .init())
        #expect(table.end(round.id) == [one, other] && table.end(round.id).isEmpty)
    }

    @Test("A presenter that misses its deadline is passed over until it answers again")
    func late() throws {
        var table = PresenterTable()
        let (slow, patient) = (table.add("a", patience: 5), table.add("a", patience: 9))
        let round = try required(table.ask("a", .writeContent, at: 100))
        #expect(table.nextDeadline == 105 && table.expire(at: 104) == .init())
        #expect(table.expire(at: 105) == .init(passedOver: [.init(presenter: slow, kind: .relinquishToWriter)]))
        #expect(table.nextDeadline == 109)
        #expect(table.answer(round.questions[1].number, by: patient) == .init(over: [round.id]))
        #expect(table.nextDeadline == nil)
        let next = try required(table.ask("a", .writeContent, at: 200))
        #expect(next.questions.count == 2 && !next.isOver && table.nextDeadline == 209)
        _ = table.remove(patient)
        let alone = try required(table.ask("a", .writeContent, at: 300))
        #expect(alone.isOver && alone.questions.map(\.presenter) == [slow])
        #expect(table.answer(round.questions[0].number, by: slow) == .init(), "too late for anything but this")
        let heard = try required(table.ask("a", .writeContent, at: 400))
        #expect(!heard.isOver)
        #expect(table.end(alone.id) == [slow], "it is told nevertheless")
    }

    @Test("A round does not wait for a presenter that left or lost its grant")
    func gone() throws {
        var table = PresenterTable()
        let (one, other, third) = (table.add("a"), table.add("a"), table.add("a"))
        let round = try required(table.ask("a", .readContent))
        #expect(table.remove(one) == .init(passedOver: [.init(presenter: one, kind: .relinquishToReader)]))
        #expect(table.place(other, nil) == .init())
        #expect(table.remove(third) == .init(over: [round.id], passedOver: [.init(presenter: third, kind: .relinquishToReader)]))
        #expect(table.end(round.id) == [other])
    }

    @Test("A revocation waits for the answers of all its presenters until a deadline")
    func revocation() throws {
        var table = PresenterTable()
        let (late, other) = (table.add("a"), table.add("b"))
        _ = table.ask("a", .readContent, at: 0)
        _ = table.expire(at: 10)
        let round = try required(table.ask(beforeRevocation: [late, other], until: 30))
        #expect(round.questions.map(\.kind) == [.revocation, .save, .revocation, .save])
        for question in round.questions.prefix(2) { #expect(table.answer(question.number, by: late) == .init()) }
        #expect(table.expire(at: 30).over == [round.id] && table.progress(of: round.id) == (2, 1))
        let nobody = table.ask(beforeRevocation: [], until: 1)
        #expect(nobody == nil)
    }

    @Test("Each round ends exactly once, in any order of events", arguments: 0..<200)
    func anyOrder(seed: Int) throws {
        var random = SplitMix(seed: UInt64(seed))
        var table = PresenterTable()
        var presenters = (0..<5).map { table.add(["a", "a/b", "c"][$0 % 3], purpose: $0 == 0 ? "p" : nil, patience: Int64(1 + $0)) }
        var open: [RoundID: [PresenterTable.Question]] = [:]
        var over: Set<RoundID> = []
        func note(_ effect: PresenterTable.Effect) {
            for round in effect.over { if !over.insert(round).inserted || open[round] == nil { Issue.record("seed \(seed): ended twice") } }
        }
        for now in 0..<60 {
            switch Int.random(in: 0..<6, using: &random) {
            case 0, 1:
                let path = ["a", "a/b", "c"].randomElement(using: &random)!
                guard let round = table.ask(path, .writeContent, saves: Bool.random(using: &random), at: Int64(now)) else { continue }
                open[round.id] = round.questions
                if round.isOver { over.insert(round.id) }
            case 2, 3:
                guard let question = open.values.flatMap({ $0 }).sorted(by: { $0.number < $1.number }).randomElement(using: &random)
                else { continue }
                note(table.answer(question.number, by: question.presenter))
            case 4: note(table.expire(at: Int64(now)))
            default:
                guard let gone = presenters.randomElement(using: &random), Bool.random(using: &random) else { continue }
                presenters.removeAll { $0 == gone }
                note(table.remove(gone))
            }
        }
        note(table.expire(at: .max))
        #expect(over == Set(open.keys) && table.nextDeadline == nil)
    }
}

@Suite struct AClaimThatAsks {
    private func claim(_ table: inout ClaimTable, _ number: Int, purpose: String? = nil) -> ClaimTable.Answer {
        table.add([ItemAccess(item("a"), .writeContent)], claimant: claimant(number), purpose: purpose.map { Array($0.utf8) })
    }

    @Test("A claim lets the presenters that it asks go first, and waits for them")
    func asking() throws {
        var table = ClaimTable()
        guard case .granted(let id) = claim(&table, 1) else { throw Unexpected() }
        #expect(table.ask(id, of: [Array("p".utf8)]) == .init())
        #expect(table[id]?.isHeld == false)
        guard case .waits(let later) = claim(&table, 2) else { throw Unexpected() }
        guard case .granted(let asked) = claim(&table, 3, purpose: "p") else { throw Unexpected() }
        #expect(table.blockers(of: later) == [id, asked])
        #expect(table.answered(id) == .init(), "who was asked still writes")
        #expect(table.remove(asked).granted == [id])
        #expect(table.remove(id).granted == [later])
        #expect(table.answered(id) == .init() && table.ask(id, of: []) == .init(), "it is gone")
    }

    @Test("A claim that asks a waiting presenter lets it go on immediately")
    func waiting() throws {
        var table = ClaimTable()
        guard case .granted(let id) = claim(&table, 1) else { throw Unexpected() }
        guard case .waits(let presenter) = claim(&table, 2, purpose: "p") else { throw Unexpected() }
        #expect(table.ask(id, of: [Array("p".utf8), Array("q".utf8)]).granted == [presenter])
        table.narrow(id, to: [Array("q".utf8)])
        #expect(table.remove(presenter) == .init())
        guard case .waits(let late) = claim(&table, 3, purpose: "p") else { throw Unexpected() }
        #expect(table.answered(id).granted == [id])
        #expect(table.remove(id).granted == [late])
    }

    @Test("A claim that is given up while it asks lets the next claim go on")
    func givingUp() throws {
        var table = ClaimTable()
        guard case .granted(let id) = claim(&table, 1) else { throw Unexpected() }
        _ = table.ask(id, of: [])
        guard case .waits(let next) = claim(&table, 2) else { throw Unexpected() }
        #expect(table.remove(id).granted == [next])
    }

    @Test("A claim that would deadlock with a presenter is reported as a deadlock")
    func circle() throws {
        var table = ClaimTable()
        let other = [ItemAccess(item("b"), .writeContent)]
        guard case .granted = table.add(other, claimant: claimant(1), purpose: nil), case .granted(let id) = claim(&table, 1) else {
            throw Unexpected()
        }
        _ = table.ask(id, of: [Array("p".utf8)])
        // Another thread of the presenter's waits for the first claim already, so nothing is wrong with the second.
        guard case .waits = table.add(other, claimant: claimant(2), purpose: nil), case .granted = claim(&table, 2, purpose: "p") else {
            throw Unexpected()
        }
        let effect = table.answered(id)
        #expect(!effect.deadlocked.isEmpty)
    }

    private struct Unexpected: Error {}
}
