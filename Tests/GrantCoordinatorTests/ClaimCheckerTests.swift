import GrantCoordinator
import TestSupport
import Testing

/// What the rules say, from paths and by trying everything: slow, and short enough to be believed.
private struct Model {
    struct Entry {
        let id: ClaimID
        let claimant: Int
        let purpose: Int?
        let accesses: [(path: String, use: ItemUse)]
        var isHeld = false
        /// Purposes of presenters that are asked before it is held.
        var awaited: Set<Int>?
    }

    var entries: [Entry] = []

    static func conflict(_ one: Entry, _ other: Entry) -> Bool {
        if one.id == other.id || (one.purpose != nil && one.purpose == other.purpose) { return false }
        return one.accesses.contains { mine in
            other.accesses.contains { theirs in
                let (a, b) = (mine.path + "/", theirs.path + "/")
                return (a.hasPrefix(b) || b.hasPrefix(a)) && mine.use.excludes(theirs.use)
            }
        }
    }

    func isBlocked(_ entry: Entry) -> Bool {
        let family = entries.filter { other in
            other.isHeld && (other.claimant == entry.claimant || (other.purpose != nil && other.purpose == entry.purpose))
        }
        // A claim that asks a presenter waits for claims of its purpose.
        var stuck = entries.filter { other in other.awaited?.contains { $0 == entry.purpose } == true }
        var grows = true
        while grows {
            let more = entries.filter { other in
                !other.isHeld && other.id != entry.id && !stuck.contains { $0.id == other.id }
                    && (family.contains { Model.conflict($0, other) } || stuck.contains { $0.id < other.id && Model.conflict($0, other) })
            }
            stuck += more
            grows = !more.isEmpty
        }
        return entries.contains { other in
            guard Model.conflict(other, entry) else { return false }
            return other.isHeld || (other.id < entry.id && !stuck.contains { $0.id == other.id })
        }
    }

    mutating func promote() -> [ClaimID] {
        var granted: [ClaimID] = []
        for place in entries.indices where !entries[place].isHeld && entries[place].awaited == nil && !isBlocked(entries[place]) {
            entries[place].isHeld = true
            granted.append(entries[place].id)
        }
        return granted
    }

    /// Whether a claim is granted in the end, if each claimant that waits for none ends all of its
    /// claims.
    func comesTrue(_ id: ClaimID) -> Bool {
        var model = self
        // Presenters answer, or their time is over.
        for place in model.entries.indices { model.entries[place].awaited = nil }
        if model.promote().contains(id) { return true }
        while true {
            let waiting = Set(model.entries.filter { !$0.isHeld }.map(\.claimant))
            let left = model.entries.filter { waiting.contains($0.claimant) }
            if left.count == model.entries.count { return false }
            model.entries = left
            if model.promote().contains(id) { return true }
        }
    }

    /// The first two that are held and must not be.
    var violation: (Entry, Entry)? {
        let held = entries.filter(\.isHeld)
        for one in held {
            // A claim's own purpose apart, nothing held conflicts.
            if let other = held.first(where: { Model.conflict($0, one) }) { return (one, other) }
        }
        return nil
    }
}

@Suite struct AnyScheduleOfClaims {
    private static let paths = ["a", "a/b", "a/b/c", "a/d", "e", "e/f"]
    private static let items = Dictionary(uniqueKeysWithValues: paths.map { ($0, item($0)) })

    /// `#expect` takes its expression apart each time, which is most of the time here.
    private static func check(_ isTrue: Bool, _ what: @autoclosure () -> String) {
        if !isTrue { Issue.record("\(what())") }
    }

    @Test(
        "The claim table agrees with a model under random schedules",
        arguments: 0..<8)
    func schedules(part: Int) throws {
        for seed in 0..<250 {
            var random = SplitMix(seed: UInt64(part * 1000 + seed))
            try run(&random, "\(part)/\(seed)")
        }
    }

    private func run(_ random: inout SplitMix, _ name: String) throws {
        var (table, model) = (ClaimTable(), Model())
        let claimants = Int.random(in: 2...5, using: &random)
        for step in 0..<40 {
            let actor = Int.random(in: 0..<claimants, using: &random)
            let isWaiting = model.entries.contains { $0.claimant == actor && !$0.isHeld }
            let own = model.entries.filter { $0.claimant == actor }
            if Int.random(in: 0..<4, using: &random) == 0 {
                askOrAnswer(&table, &model, &random, "schedule \(name), step \(step)")
            } else if isWaiting || (!own.isEmpty && Bool.random(using: &random)) {
                // A waiting claimant can only give up. Others end a claim.
                let gone = isWaiting ? own.first { !$0.isHeld } : own.randomElement(using: &random)
                guard let gone, !isWaiting || Int.random(in: 0..<4, using: &random) == 0 else { continue }
                let effect = table.remove(gone.id)
                model.entries.removeAll { $0.id == gone.id }
                Self.check(effect.granted == model.promote(), "schedule \(name), step \(step): other claims were granted")
            } else {
                add(&table, &model, actor, &random, "schedule \(name), step \(step)")
            }
            Self.check(model.violation == nil, "schedule \(name), step \(step): two are held that exclude each other")
            Self.check(table.claims.map(\.isHeld) == model.entries.map(\.isHeld), "schedule \(name), step \(step): others are held")
        }
        for entry in model.entries where entry.awaited != nil { answer(entry.id, &table, &model, "schedule \(name), at the end") }
        // No claim is lost: each claimant that waits for none ends its claims, until all have had
        // their turn.
        while !model.entries.isEmpty {
            let waiting = Set(model.entries.filter { !$0.isHeld }.map(\.claimant))
            let ready = model.entries.filter { !waiting.contains($0.claimant) }
            try #require(!ready.isEmpty, "schedule \(name): all wait for each other")
            model.entries.removeAll { entry in ready.contains { $0.id == entry.id } }
            Self.check(table.remove(Set(ready.map(\.id))).granted == model.promote(), "schedule \(name), at the end")
        }
    }

    /// A claim that was just granted has presenters to ask, or those of another have answered.
    private func askOrAnswer(_ table: inout ClaimTable, _ model: inout Model, _ random: inout SplitMix, _ place: String) {
        if let asking = model.entries.filter({ $0.awaited != nil }).randomElement(using: &random) {
            return answer(asking.id, &table, &model, place)
        }
        // Only the last entry: earlier granted work has begun.
        guard let last = model.entries.last, last.isHeld else { return }
        let purposes = Set((0..<3).filter { _ in Bool.random(using: &random) })
        model.entries[model.entries.count - 1].isHeld = false
        model.entries[model.entries.count - 1].awaited = purposes
        let effect = table.ask(last.id, of: Set(purposes.map { [UInt8($0)] }))
        Self.check(effect.granted == model.promote(), "\(place): others were granted when presenters were asked")
    }

    private func answer(_ id: ClaimID, _ table: inout ClaimTable, _ model: inout Model, _ place: String) {
        for index in model.entries.indices where model.entries[index].id == id { model.entries[index].awaited = nil }
        let effect = table.answered(id)
        Self.check(effect.granted == model.promote() && effect.deadlocked.isEmpty, "\(place): others were granted after the answers")
    }

    private func add(_ table: inout ClaimTable, _ model: inout Model, _ actor: Int, _ random: inout SplitMix, _ place: String) {
        let accesses = (0..<Int.random(in: 1...2, using: &random)).map { _ in
            (path: Self.paths.randomElement(using: &random)!, use: ItemUse.allCases.randomElement(using: &random)!)
        }
        // Some threads work for one purpose.
        let purpose = Int.random(in: 0..<3, using: &random) == 0 ? actor / 2 : nil
        let answer = table.add(
            accesses.map { ItemAccess(Self.items[$0.path]!, $0.use) }, claimant: claimant(actor), purpose: purpose.map { [UInt8($0)] })
        switch answer {
        case .granted(let id), .waits(let id):
            var entry = Model.Entry(id: id, claimant: actor, purpose: purpose, accesses: accesses)
            entry.isHeld = !model.isBlocked(entry)
            Self.check((answer == .granted(id)) == entry.isHeld, "\(place): \(answer)")
            model.entries.append(entry)
            if !entry.isHeld { Self.check(model.comesTrue(id), "\(place): it will never be granted") }
        case .deadlock:
            var refused = model
            let id = ClaimID(rawValue: .max)
            refused.entries.append(Model.Entry(id: id, claimant: actor, purpose: purpose, accesses: accesses))
            Self.check(!refused.comesTrue(id), "\(place): there was no deadlock")
        }
    }
}
