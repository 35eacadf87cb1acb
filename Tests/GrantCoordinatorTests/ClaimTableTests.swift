import GrantCoordinator
import Testing

/// Items as paths in a tree that never changes. The hash of its path identifies an item.
func item(_ path: String) -> ClaimedItem {
    func id(_ path: some StringProtocol) -> ItemID { ItemID(UInt64(bitPattern: Int64(path.hashValue)), 0, 0) }
    let parts = path.split(separator: "/")
    let above = parts.indices.map { parts[..<$0].joined(separator: "/") }
    return ClaimedItem(
        identities: [id(parts.joined(separator: "/"))],
        place: parts.last.map { ItemPlace(directory: id(above.last ?? ""), name: Array($0.utf8)) }, ancestors: above.map { id($0) })
}

func claimant(_ number: Int) -> ClaimantID { ClaimantID(high: 0, low: UInt64(number)) }

extension ClaimTable {
    fileprivate mutating func add(_ path: String, _ use: ItemUse, by number: Int, purpose: String? = nil) -> Answer {
        add([ItemAccess(item(path), use)], claimant: claimant(number), purpose: purpose.map { Array($0.utf8) })
    }
}

extension ClaimTable.Answer {
    fileprivate var granted: ClaimID? { if case .granted(let id) = self { id } else { nil } }
    fileprivate var waiting: ClaimID? { if case .waits(let id) = self { id } else { nil } }
}

@Suite struct AClaimTable {
    @Test("The claim table lets readers share an item and gives a writer the item alone")
    func sharing() throws {
        var table = ClaimTable()
        let first = try #require(table.add("a", .readContent, by: 1).granted)
        let second = try #require(table.add("a", .readContent, by: 2).granted)
        let writer = try #require(table.add("a", .writeContent, by: 3).waiting)
        #expect(table.blockers(of: writer) == [first, second])
        #expect(table.remove(first).granted.isEmpty)
        #expect(table.remove(second).granted == [writer])
        #expect(table.add("a", .readContent, by: 1).waiting != nil)
    }

    @Test("A claim of work begun under another claim passes the waiters for that claim")
    func begunWork() throws {
        var table = ClaimTable()
        _ = try #require(table.add("a", .readContent, by: 1).granted)
        _ = try #require(table.add("a", .writeContent, by: 2).waiting)
        table.origins[claimant(3)] = (claimant(1), waits: false)
        #expect(table.add("a", .readContent, by: 3).granted != nil)
        #expect(table.add("a", .readContent, by: 4).waiting != nil)
    }

    @Test("A claim that would deadlock with the work that waits for it is refused")
    func awaitedWork() throws {
        var table = ClaimTable()
        _ = try #require(table.add("a", .readContent, by: 1).granted)
        table.origins[claimant(2)] = (claimant(1), waits: true)
        table.origins[claimant(3)] = (claimant(2), waits: true)
        table.origins[claimant(4)] = (claimant(1), waits: false)
        #expect(table.add("a", .writeContent, by: 2) == .deadlock)
        #expect(table.add("a", .writeContent, by: 3) == .deadlock)
        #expect(table.add("a", .writeContent, by: 4).waiting != nil)
    }

    @Test("A reader does not pass a waiting writer")
    func order() throws {
        var table = ClaimTable()
        let reader = try #require(table.add("a", .readContent, by: 1).granted)
        let writer = try #require(table.add("a", .writeContent, by: 2).waiting)
        let late = try #require(table.add("a", .readContent, by: 3).waiting)
        #expect(table.remove(reader).granted == [writer])
        #expect(table.remove(writer).granted == [late])
    }

    @Test("A claim of a directory covers everything below it and nothing beside it")
    func covering() throws {
        var table = ClaimTable()
        _ = try #require(table.add("a/b", .writeContent, by: 1).granted)
        #expect(table.add("a/b/c/d", .readContent, by: 2).waiting != nil)
        #expect(table.add("a", .readContent, by: 3).waiting != nil)
        #expect(table.add("a/bc", .writeContent, by: 4).waiting != nil, "a reader of all of it has come before")
        #expect(table.add("x", .writeContent, by: 5).granted != nil)
    }

    @Test("A claim follows a rename and a replacement of its item")
    func renaming() throws {
        var table = ClaimTable()
        let id = try #require(table.add("a/file", .writeContent, by: 1).granted)
        // Saved by renaming another over it: another identity at the place.
        var replaced = item("a/file")
        replaced.identities = [ItemID(7, 7, 7)]
        let saved = table.add([ItemAccess(replaced, .readContent)], claimant: claimant(2), purpose: nil)
        let reader = try #require(saved.waiting)
        // Moved into another directory: a claim of that directory has to wait.
        var moved = item("b/file")
        moved.identities += item("a/file").identities
        _ = table.update([id: [ItemAccess(moved, .writeContent)]])
        #expect(table.add("b", .readContent, by: 3).waiting != nil)
        #expect(table[reader]?.isHeld == true, "the old place is free, so its reader goes on")
    }

    @Test("A claim never waits for a claim of the same purpose")
    func purposes() throws {
        var table = ClaimTable()
        let outer = try #require(table.add("a", .readContent, by: 1, purpose: "p").granted)
        let writer = try #require(table.add("a", .writeContent, by: 2).waiting)
        let inner = try #require(table.add("a/b", .writeContent, by: 1, purpose: "p").granted)
        #expect(table.remove(outer).granted.isEmpty)
        #expect(table.remove(inner).granted == [writer])
    }

    @Test("A claim that would deadlock is refused, and other waiters are unaffected")
    func deadlock() throws {
        var table = ClaimTable()
        _ = try #require(table.add("a", .writeContent, by: 1).granted)
        let second = try #require(table.add("b", .writeContent, by: 2).granted)
        let waiting = try #require(table.add("b", .writeContent, by: 1).waiting)
        #expect(table.add("a", .writeContent, by: 2) == .deadlock)
        #expect(table.add("a", .readContent, by: 3).waiting != nil)
        #expect(table.remove(second).granted == [waiting])
        #expect(table.add("a/b", .readContent, by: 1) == .deadlock, "it would wait for itself")
    }

    @Test("A batch of claims is granted as a whole or not at all")
    func batches() throws {
        var table = ClaimTable()
        let both = [ItemAccess(item("a"), .writeContent), ItemAccess(item("b"), .writeContent)]
        let held = try #require(table.add("b", .readContent, by: 1).granted)
        let first = try #require(table.add(both, claimant: claimant(2), purpose: nil).waiting)
        let second = try #require(table.add(both.reversed(), claimant: claimant(3), purpose: nil).waiting)
        #expect(table.add("a", .readContent, by: 4).waiting != nil, "the batch came before")
        #expect(table.remove(held).granted == [first])
        #expect(table.remove(first).granted == [second])
    }

    @Test("A metadata reader passes a content writer but not a displacement")
    func metadata() throws {
        var table = ClaimTable()
        _ = try #require(table.add("a", .writeContent, by: 1).granted)
        _ = try #require(table.add("a", .readMetadata, by: 2).granted)
        #expect(table.add("a", .writeMetadata, by: 3).waiting != nil)
        _ = try #require(table.add("b", .displace, by: 1).granted)
        #expect(table.add("b", .readMetadata, by: 4).waiting != nil)
    }

    @Test("Five thousand waiting claims are granted in order of arrival")
    func many() throws {
        var table = ClaimTable()
        var ids = [try #require(table.add("a", .writeContent, by: 0).granted)]
        for number in 1...5000 { ids.append(try #require(table.add("a", .writeContent, by: number).waiting)) }
        for place in 1..<ids.count { #expect(table.remove(ids[place - 1]).granted == [ids[place]]) }
    }

    @Test("All readers behind a writer are granted together when it ends")
    func readersTogether() throws {
        var table = ClaimTable()
        let writer = try #require(table.add("a", .writeContent, by: 0).granted)
        let readers = try (1...1000).map { try #require(table.add("a/\($0)", .readContent, by: $0).waiting) }
        let last = try #require(table.add("a", .displace, by: 1001).waiting)
        #expect(table.remove(writer).granted == readers)
        #expect(table.remove(Set(readers.dropLast())).granted.isEmpty)
        #expect(table.remove(readers[999]).granted == [last])
    }

    @Test("A claim that waits passes others as soon as its claimant holds what they wait for")
    func passesLater() throws {
        var table = ClaimTable()
        let holder = try #require(table.add("a", .writeContent, by: 1).granted)
        let other = try #require(table.add("b", .writeContent, by: 9).granted)
        let first = try #require(table.add("a", .writeContent, by: 2, purpose: "p").waiting)
        let both = [ItemAccess(item("a"), .writeContent), ItemAccess(item("c"), .writeContent)]
        _ = try #require(table.add(both, claimant: claimant(3), purpose: nil).waiting)
        let related = try #require(table.add("c", .writeContent, by: 4, purpose: "p").waiting)
        // The second waits for the first now, so what belongs to the first need not wait for it.
        #expect(table.remove(holder).granted == [first, related])
        #expect(table.remove(other).granted.isEmpty)
    }
}
