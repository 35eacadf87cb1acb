import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantStore

@Suite struct GrantsInTheStore {
    let scratch = Scratch()
    let store: GrantStore

    init() throws { store = try GrantStore(directory: scratch.store, create: true) }

    @Test("A grant read from the store equals the inserted one")
    func comeBackAsTheyWerePut() throws {
        var grant = try sample("docs", expires: Instant(nanoseconds: 1_900_000_000_123_456_789))
        grant.access = .readOnly
        try store.insert(grant, by: tester)
        #expect(text(try store.grant(grant.id)) == text(grant))
        let again = try GrantStore(directory: scratch.store, create: false)
        #expect(text(try again.grant(grant.id)) == text(grant))
    }

    @Test("A grant in the store may have a name and a path of any bytes")
    func haveNamesAndPathsOfAnyBytes() throws {
        var grant = try sample("x")
        grant.name = try GrantName(entry: [0xFF, 0x0A, 0x27, 0x3B, 0x80])
        grant.bookmark.path = [0x2F, 0xFE, 0x0A, 0x22]
        try store.insert(grant, by: tester)
        #expect(text(try store.grants().first) == text(grant))
        #expect(try store.log(after: 0, limit: 10).first?.name == grant.name)
    }

    @Test("The grants of a store are listed by view and name")
    func areListedByViewAndName() throws {
        let other = try ViewName("another")
        try store.insert([sample("b"), sample("a"), sample("z", view: other)], by: tester)
        #expect(try store.grants().map(\.name.description) == ["z", "a", "b"])
        #expect(try store.grants(view: .standard).map(\.name.description) == ["a", "b"])
        #expect(try store.grants(view: try ViewName("none")).isEmpty)
    }

    @Test("A revoked grant keeps its name until it is removed from the store")
    func keepTheirNameTakenInWhateverState() throws {
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        _ = try store.revoke([grant.id], by: tester)
        #expect(code { try store.insert(try sample("docs"), by: tester) } == .alreadyExists)
        try store.insert(try sample("docs", view: try ViewName("other")), by: tester)
        try store.remove([grant.id], by: tester)
        try store.insert(try sample("docs"), by: tester)
    }

    @Test("Several grants are inserted into the store together or not at all")
    func areInsertedTogetherOrNotAtAll() throws {
        try store.insert(try sample("b"), by: tester)
        #expect(code { try store.insert([try sample("a"), try sample("b")], by: tester) } == .alreadyExists)
        #expect(try store.grants().count == 1)
        #expect(try store.log(after: 0, limit: 10).count == 1)
    }

    @Test("A second revocation of a grant is not logged")
    func areRevokedOnce() throws {
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        #expect(try store.revoke([grant.id], by: tester).map(\.state) == [.revoked])
        #expect(try store.revoke([grant.id, .random()], by: tester).map(\.state) == [.revoked])
        #expect(try store.log(after: 0, limit: 10).map(\.event) == [.granted, .revoked])
    }

    @Test("A restoration gives a revoked grant a new activation")
    func getANewActivationWhenRestored() throws {
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        #expect(try store.restore([grant.id], by: tester)[0].activation == 1)
        _ = try store.revoke([grant.id], by: tester)
        let restored = try store.restore([grant.id], by: tester)[0]
        #expect(restored.activation == 2)
        #expect(restored.state == .active)
        #expect(code { _ = try store.restore([grant.id, .random()], by: tester) } == .notFound)
    }

    @Test("A restoration drops a past expiry of a grant and keeps a future one")
    func loseAPassedExpiryWhenRestoredAndKeepAComingOne() throws {
        let passed = try sample("passed", expires: Instant(seconds: 1))
        let coming = try sample("coming", state: .revoked, expires: Instant(seconds: 9_000_000_000))
        try store.insert([passed, coming], by: tester)
        let restored = try store.restore([passed.id, coming.id], by: tester)
        #expect(restored[0].expires == nil)
        #expect(restored[0].activation == 2)
        #expect(restored[1].expires == coming.expires)
    }

    @Test("Only active grants whose expiry has passed are marked as expired")
    func areMarkedExpiredOnlyWhenTheyAre() throws {
        let passed = try sample("passed", expires: Instant(seconds: 100))
        let revoked = try sample("revoked", state: .revoked, expires: Instant(seconds: 100))
        let coming = try sample("coming", expires: Instant(seconds: 300))
        try store.insert([passed, revoked, coming], by: tester)
        try store.markExpired([passed.id, revoked.id, coming.id, .random()], now: Instant(seconds: 200), by: tester)
        #expect(try store.grants().map(\.state) == [.active, .expired, .revoked])
        #expect(try store.revoke([passed.id], by: tester)[0].state == .revoked)
    }

    @Test("A later expiry does not reactivate an expired grant")
    func areNotMadeActiveByALaterExpiry() throws {
        let grant = try sample("docs", expires: Instant(seconds: 1))
        try store.insert(grant, by: tester)
        #expect(try store.update(grant.id, expires: .some(nil), by: tester).state == .expired)
        #expect(try store.grant(grant.id)?.state == .expired)
    }

    @Test("A change of a grant is stored, and an identical change is not logged")
    func change() throws {
        let grant = try sample("docs")
        try store.insert([grant, try sample("taken")], by: tester)
        var changed = try store.update(grant.id, access: .readOnly, name: try name("papers"), by: tester)
        #expect(changed.access == .readOnly)
        #expect(changed.name == (try name("papers")))
        changed = try store.update(grant.id, expires: .some(Instant(seconds: 9_000_000_000)), by: tester)
        #expect(changed.expires == Instant(seconds: 9_000_000_000))
        #expect(text(try store.grant(grant.id)) == text(changed))
        #expect(code { _ = try store.update(grant.id, name: try name("taken"), by: tester) } == .alreadyExists)
        #expect(code { _ = try store.update(.random(), access: .readOnly, by: tester) } == .notFound)
        let entries = try store.log(after: 0, limit: 10).count
        _ = try store.update(grant.id, access: .readOnly, name: try name("papers"), by: tester)
        #expect(try store.log(after: 0, limit: 10).count == entries)
    }

    @Test("Rules of a grant are stored, changed list by list, and logged with their patterns")
    func rulesAreStored() throws {
        let patterns = { (texts: [String]) throws in try texts.map { try RulePattern(Array($0.utf8)) } }
        let grant = try sample("docs", rules: try GrantRules(hide: try patterns([".env"]), only: try patterns(["src/"])))
        try store.insert(grant, by: tester)
        #expect(try store.grant(grant.id)?.rules == grant.rules)
        let changed = try store.update(
            grant.id, rules: RuleChange(hide: try patterns([".env", "*.key"]), protect: try patterns([".git/hooks"])), by: tester)
        #expect(
            changed.rules
                == (try GrantRules(
                    hide: try patterns([".env", "*.key"]), protect: try patterns([".git/hooks"]), only: try patterns(["src/"]))))
        #expect(try store.grant(grant.id)?.rules == changed.rules)
        _ = try store.update(grant.id, rules: RuleChange(hide: changed.rules.hide), by: tester)
        #expect(code { _ = try store.update(grant.id, rules: RuleChange(hide: try patterns(["*"])), by: tester) } == .usage)
        #expect(try store.update(grant.id, rules: RuleChange(.none), by: tester).rules.isEmpty)
        #expect(
            try store.log(after: 0, limit: 10).map(\.detail) == [
                "read-write /srv/docs, hide .env, only src/", "hide .env → .env, *.key, protect nothing → .git/hooks",
                "hide .env, *.key → nothing, protect .git/hooks → nothing, only src/ → nothing",
            ])
    }

    @Test("A renewed bookmark of a grant is stored, and its move is logged once")
    func followTheirDirectory() throws {
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        var moved = grant.bookmark
        moved.path = Array("/srv/elsewhere".utf8)
        try store.renewBookmarks([(grant.id, moved)], by: tester)
        try store.renewBookmarks([(grant.id, moved)], by: tester)
        #expect(try store.grant(grant.id)?.bookmark == moved)
        #expect(try store.log(after: 1, limit: 10).map(\.event) == [.bookmarkMoved])
        #expect(try store.log(after: 1, limit: 10).map(\.detail) == ["/srv/docs to /srv/elsewhere"])
        // A missing grant, and one whose directory was exchanged, are unchanged. The rest is
        // renewed.
        let other = try sample("other")
        try store.insert(other, by: tester)
        var accepted = moved
        accepted.identity.inode += 1
        let confirmed = try store.rebookmark(try #require(try store.grant(grant.id)), to: accepted, by: tester)
        try store.renewBookmarks([(.random(), moved), (grant.id, grant.bookmark), (other.id, moved)], by: tester)
        #expect(try store.grant(grant.id)?.bookmark == confirmed.bookmark)
        #expect(try store.grant(other.id)?.bookmark == moved)
    }
}

@Suite struct TheLog {
    let scratch = Scratch()

    @Test("A log entry has its actor, its event, its grant and its detail")
    func saysWhoDidWhatToWhich() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        try store.append(.denied, view: .standard, grant: grant.id, name: grant.name, detail: "why", by: tester)
        try store.append(.mounted, by: .current())
        let entries = try store.log(after: 1, limit: 1)
        #expect(entries.count == 1)
        #expect(entries[0].number == 2)
        #expect(entries[0].event == .denied)
        #expect(entries[0].actor == tester)
        #expect(entries[0].view == .standard)
        #expect(entries[0].grant == grant.id)
        #expect(entries[0].detail == "why")
        #expect(try store.lastLogNumber() == 3)
        #expect(try store.log(after: 2, limit: 10).map(\.actor.pid) == [getpid()])
        #expect(try store.log(after: 2, limit: 10)[0].grant == nil)
    }

    @Test("Entries of runs have a bound of their own, and push out no entries of grants")
    func boundsRuns() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grant = try sample("docs")
        let views = try (1...3).map { try ViewName("run-\($0)") }
        let made = try store.append([use(grant, uid: 1), use(nil, uid: 1)], keeping: 100, by: tester)
        for view in views {
            let wanted = (0..<20).map { number in
                LogEntry(
                    time: Instant(seconds: 1), event: .wanted, actor: tester, view: view, path: Array("/home/\(number)".utf8),
                    error: ENOENT, count: 2)
            }
            let host = LogEntry(time: Instant(seconds: 1), event: .hostRefused, actor: tester, view: view, detail: "a:1: no", error: EACCES)
            try store.appendOfRun(wanted + [host], keeping: 30)
        }
        let counts = try views.map { try store.log(of: $0, events: [.wanted, .hostRefused]).count }
        #expect(counts == [0, 9, 21], "the oldest go first")
        #expect(try store.log(after: 0, limit: 1000).map(\.number).prefix(2) == made.prefix(2))
        #expect(try store.viewsOfRuns() == Array(views.dropFirst()))
        #expect(try store.log(of: views[2], events: [.hostRefused]).map(\.detail) == ["a:1: no"])
    }

    /// Something done through a mount, by a user of a grant.
    private func use(_ grant: Grant?, uid: UInt32, _ event: LogEvent = .opened, error: Int32? = 0) -> LogEntry {
        LogEntry(
            time: Instant(seconds: 1), event: event, actor: Actor(uid: uid, pid: 1, program: "p"), view: .standard, grant: grant?.id,
            name: grant?.name, path: Array("/p".utf8), error: error)
    }

    @Test("The result of a change is written to the log once")
    func saysHowAChangeEndedOnce() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let numbers = try store.append(
            [use(nil, uid: 1, .unlinked, error: nil), use(nil, uid: 1, .renamed, error: nil)], keeping: 100, by: tester)
        #expect(try store.log(after: 0, limit: 9).map(\.isUnfinished) == [true, true])
        // A missing entry, and one that has ended, are unchanged.
        _ = try store.append([], results: [(numbers[0], 2), (numbers[0], 0), (99, 1)], keeping: 100, by: tester)
        #expect(try store.log(after: 0, limit: 9).map(\.error) == [2, nil])
    }

    @Test("The log drops the entries of the busiest grant and counts them")
    func isShared() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let (loud, quiet) = (try sample("loud"), try sample("quiet"))
        try store.insert([loud, quiet], by: tester)
        _ = try store.append((0..<30).map { _ in use(quiet, uid: 1) } + [use(nil, uid: 1)], keeping: 100, by: tester)
        for _ in 0..<10 { _ = try store.append((0..<40).map { use(loud, uid: $0 == 7 ? 7 : 8) }, keeping: 100, by: tester) }
        let entries = try store.log(after: 0, limit: 1000)
        #expect(entries.filter { $0.event == .granted }.count == 2)
        #expect(entries.filter { $0.grant == quiet.id && $0.event == .opened }.count == 30)
        let left = entries.filter { $0.grant == loud.id && $0.event == .opened }
        // What the others leave of a hundred, and a sixteenth of that and one batch at the most.
        #expect(left.count >= 69 && left.count <= 69 + 6 + 40)
        #expect(left.filter { $0.actor.uid == 7 }.count == 10, "nor does one user push out another's")
        let forgotten = entries.filter { $0.event == .forgotten }
        #expect(forgotten.map(\.grant) == [loud.id] && forgotten[0].name == loud.name)
        #expect((forgotten.first?.count ?? 0) + Int64(left.count) == 400)
        // Entries that were never written are counted in the same entry.
        let unwritten = GrantStore.DroppedEntries(view: .standard, grant: loud.id, name: loud.name, count: 5)
        _ = try store.append([], dropped: [unwritten], keeping: 100, by: tester)
        let after = try store.log(after: 0, limit: 1000).filter { $0.event == .forgotten }
        #expect(after.count == 1 && after.first?.count == forgotten[0].count.map { $0 + 5 })
    }

    @Test("Each event of the log is kept in the partition that its table gives")
    func keepsEachEventInTheShareThatTheTableSays() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        for event in LogEvent.allCases { try store.append(event, by: tester) }
        var kept: [String: Int64] = [:]
        try store.read { (database) throws(GrantError) in
            try database.query("SELECT event, kept FROM log") { (row) throws(GrantError) in kept[row.text(0)] = row.integer(1) }
        }
        #expect(kept.count == LogEvent.allCases.count)
        for event in LogEvent.allCases { #expect(kept[event.rawValue] == event.partition.rawValue, "\(event)") }
    }

    @Test("The log's share of each grant is equal and no larger than needed")
    func sharesAreEqualAndNobodyNeedsMoreThanHeHas() {
        #expect(GrantStore.share(of: [], in: 5) == .max)
        #expect(GrantStore.share(of: [3, 1], in: 5) == .max)
        #expect(GrantStore.share(of: [10, 1, 2], in: 9) == 6)
        #expect(GrantStore.share(of: [10, 10, 10], in: 9) == 3)
        #expect(GrantStore.share(of: [10, 10, 10], in: 2) == 1)
    }

    @Test("Refusals in the log displace no entry about changes of grants")
    func refusalsPushOutNothingThatWasDoneToGrants() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        let other = use(nil, uid: 3, .denied)
        try store.write { (database) throws(GrantError) in
            try add(other, 3, to: database, of: store)
            try add(use(grant, uid: 1, .denied), GrantStore.entryLimit + 2000, to: database, of: store)
        }
        let entries = try store.log(after: 0, limit: .max)
        #expect(entries.first?.event == .granted)
        #expect(entries.filter { $0.event == .denied && $0.actor.uid == 3 }.count == 3)
        #expect(entries.count <= GrantStore.entryLimit + 512 + 4)
    }

    private func add(_ entry: LogEntry, _ count: Int, to database: Database, of store: GrantStore) throws(GrantError) {
        for _ in 0..<count { try store.add(entry, to: database) }
    }
}

@Suite struct Mounts {
    let scratch = Scratch()

    @Test("A mount is registered in the store, updated and unregistered")
    func areRegisteredAndForgotten() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        var record = MountRecord(
            id: .random(), shown: .one(.standard), mountpoint: [0x2F, 0xFF], pid: 7, processStart: .max, bootID: "boot", socket: "s.sock",
            since: Instant(seconds: 3))
        try store.register(record)
        #expect(try store.mounts() == [record])
        // Again, once it is known what it is.
        for entry in [nil, FUSEConnection.Entry(inode: .max, changed: -1, instance: .max)] {
            let device = DeviceNumber(major: 4095, minor: .max)
            record.connection = FUSEConnection(device: device, mount: entry == nil ? nil : .max, entry: entry, generation: .max)
            try store.register(record)
            #expect(try store.mounts() == [record])
        }
        #expect(try store.mounts(view: try ViewName("other")).isEmpty)
        try store.unregister(record.id)
        try store.unregister(record.id)
        #expect(try store.mounts().isEmpty)
    }
}
