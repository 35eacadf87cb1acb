import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantStore

/// A store that cannot be trusted is an error, remains unchanged, and never yields an unrecorded
/// grant.
@Suite struct AStoreThatIsDamaged {
    let scratch = Scratch()

    /// Twelve grants, half of them revoked, in a closed store.
    private func fill() throws -> [String: String] {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grants = try (0..<12).map { try sample("grant\($0)") }
        try store.insert(grants, by: tester)
        _ = try store.revoke(grants[..<6].map(\.id), by: tester)
        return Dictionary(uniqueKeysWithValues: try store.grants().map { ($0.id.description, text($0)) })
    }

    /// Opens and reads everything, or returns nil if it was refused.
    private func read() throws -> [Grant]? {
        do throws(GrantError) {
            return try GrantStore(directory: scratch.store, create: false).grants()
        } catch {
            #expect([.storeDamaged, .storeNewer, .storeUnavailable].contains(error.code), "\(error)")
            return nil
        }
    }

    @Test("A store with a flipped byte in its database yields no unrecorded grant")
    func byAFlippedByteInTheDatabaseInventsNothing() throws {
        let truth = try fill()
        let bytes = scratch.bytes(scratch.database)
        var refused = 0
        var position = 0
        while position < bytes.count {
            var flipped = bytes
            flipped[position] ^= UInt8(1 << (position % 8))
            scratch.write(flipped, to: scratch.database)
            if let grants = try read() {
                #expect(Set(grants.map(text)).isSubset(of: truth.values), "byte \(position)")
            } else {
                refused += 1
            }
            for suffix in ["-wal", "-shm"] { unlink(scratch.database + suffix) }
            position += 37
        }
        #expect(refused > 0)
        scratch.write(bytes, to: scratch.database)
        #expect(try read()?.count == truth.count)
    }

    @Test("A flipped byte in the write-ahead log of a store activates no revoked grant")
    func byAFlippedByteInTheWriteAheadLogBringsNoRevokedGrantBack() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        _ = try store.revoke([grant.id], by: tester)
        try store.append(.denied, by: tester)
        let copy = Scratch()
        try FileManager.default.copyItem(atPath: scratch.store, toPath: copy.store)
        let log = copy.bytes(copy.database + "-wal")
        #expect(!log.isEmpty)
        let database = copy.bytes(copy.database)
        for position in stride(from: 0, to: log.count, by: 101) {
            var flipped = log
            flipped[position] ^= 0x10
            copy.write(database, to: copy.database)
            copy.write(flipped, to: copy.database + "-wal")
            unlink(copy.database + "-shm")
            let opened = try GrantStore(directory: copy.store, create: false)
            #expect(try opened.grants().map(\.state) == [.revoked], "byte \(position)")
        }
    }

    @Test("A truncated database of a store is refused or read without invented grants")
    func byBeingCutOffAtAnyLengthIsLeftAsItIs() throws {
        let truth = try fill()
        let bytes = scratch.bytes(scratch.database)
        for length in [0, 1, 15, 16, 99, 100, 512, 4095, 4096, 4097, bytes.count / 2, bytes.count - 4096, bytes.count - 1] {
            let cut = Array(bytes[..<length])
            scratch.write(cut, to: scratch.database)
            if let grants = try read() { #expect(Set(grants.map(text)).isSubset(of: truth.values), "length \(length)") }
            if length < 4096 {
                #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeDamaged, "length \(length)")
                #expect(scratch.bytes(scratch.database) == cut)
            }
            for suffix in ["-wal", "-shm"] { unlink(scratch.database + suffix) }
        }
    }

    @Test("A file that is not a database of a store is refused and left unchanged")
    func byBeingSomethingElseIsLeftAsItIs() throws {
        _ = try fill()
        scratch.write(Array("this is not a database, whatever its name is\n".utf8), to: scratch.database)
        #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeDamaged)
        #expect(scratch.bytes(scratch.database).starts(with: "this is".utf8))
        // A database of another program.
        unlink(scratch.database)
        do {
            let other = try Database(path: scratch.database, create: true)
            try other.execute("CREATE TABLE grants (x); PRAGMA user_version = 1")
        }
        #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeDamaged)
    }

    @Test("A record of a store that was changed by hand is refused")
    func byHandIsRefused() throws {
        for change in [
            "UPDATE grants SET state = 'active'", "UPDATE grants SET access = 'read-only'",
            "UPDATE grants SET name = x'41' WHERE name = x'6772616e7430'",
            "UPDATE grants SET expires = 4", "UPDATE grants SET activation = activation + 1", "UPDATE grants SET view = x'42'",
            "UPDATE grants SET id = randomblob(16)", "UPDATE grants SET bookmark = (SELECT max(bookmark) FROM grants)",
            "UPDATE grants SET seal = seal + 1", "UPDATE grants SET rules = x'682a2e6b657900'", "UPDATE grants SET rules = x'78'",
            "DROP TABLE grants", "ALTER TABLE grants RENAME COLUMN seal TO sealed",
        ] {
            let own = Scratch()
            do {
                let store = try GrantStore(directory: own.store, create: true)
                try store.insert((0..<2).map { try sample("grant\($0)", state: .revoked) }, by: tester)
            }
            do { try Database(path: own.database, create: false).execute(change) }
            #expect(code { _ = try GrantStore(directory: own.store, create: false).grants() } == .storeDamaged, "\(change)")
        }
    }

    @Test("A grant of a store whose rules were taken away or changed by hand is refused")
    func byTakingAwayRulesIsRefused() throws {
        for change in ["NULL", "x''", "x'682e656e762a00'", "x'702e656e7600'", "x'682e656e76'", "x'682e656e7600ff'"] {
            let own = Scratch()
            do {
                let store = try GrantStore(directory: own.store, create: true)
                try store.insert(try sample("docs", rules: try GrantRules(hide: [try RulePattern(Array(".env".utf8))])), by: tester)
                #expect(try store.grants()[0].rules.hide.count == 1)
            }
            do { try Database(path: own.database, create: false).execute("UPDATE grants SET rules = \(change)") }
            #expect(code { _ = try GrantStore(directory: own.store, create: false).grants() } == .storeDamaged, "\(change)")
        }
    }

    @Test("A record or a database that was copied from another store is refused")
    func byRecordsOfAnotherStoreIsRefused() throws {
        let truth = try fill()
        let other = Scratch()
        do { try GrantStore(directory: other.store, create: true).insert(try sample("theirs"), by: tester) }
        do {
            let database = try Database(path: scratch.database, create: false)
            try database.execute("ATTACH '\(other.database)' AS other; INSERT INTO grants SELECT * FROM other.grants")
        }
        let store = try GrantStore(directory: scratch.store, create: false)
        #expect(code { _ = try store.grants() } == .storeDamaged)
        // A whole database with a key that is not its own.
        try FileManager.default.removeItem(atPath: other.store + "/key")
        try FileManager.default.copyItem(atPath: scratch.store + "/key", toPath: other.store + "/key")
        #expect(code { _ = try GrantStore(directory: other.store, create: false).grants() } == .storeDamaged)
        #expect(!truth.isEmpty)
    }

    @Test("A store that lost its key is refused and gets no new key")
    func byALostKeyIsRefusedAndGetsNoNewOne() throws {
        _ = try fill()
        unlink(scratch.store + "/key")
        #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeDamaged)
        #expect(access(scratch.store + "/key", F_OK) != 0)
        scratch.write([1, 2, 3], to: scratch.store + "/key")
        #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeDamaged)
    }

    @Test("A store that lost its database but not its log is refused")
    func byALostDatabaseWhoseLogIsStillThereIsRefused() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        try store.insert(try sample("docs"), by: tester)
        unlink(scratch.database)
        #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeDamaged)
        #expect(code { _ = try store.grants() } == .notFound)
        #expect(code { _ = try store.dataVersion() } == .notFound)
    }

    @Test("A store whose database is replaced while in use refuses every operation")
    func byBeingReplacedWhileInUseRefusesEverything() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let grant = try sample("docs")
        try store.insert(grant, by: tester)
        let other = Scratch()
        _ = try GrantStore(directory: other.store, create: true)
        #expect(rename(other.database, scratch.database) == 0)
        #expect(code { _ = try store.grants() } == .storeUnavailable)
        #expect(code { _ = try store.dataVersion() } == .storeUnavailable)
        #expect(code { _ = try store.revoke([grant.id], by: tester) } == .storeUnavailable)
    }
}
