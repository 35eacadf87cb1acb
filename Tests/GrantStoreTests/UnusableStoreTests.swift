import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantStore

@Suite struct AStoreOfAnotherVersion {
    let scratch = Scratch()

    @Test("A store of a newer version is refused and left unchanged")
    func thatIsNewerIsRefusedAndLeftAsItIs() throws {
        do { _ = try GrantStore(directory: scratch.store, create: true) }
        do { try Database(path: scratch.database, create: false).execute("PRAGMA user_version = \(Schema.current.version + 1)") }
        let before = scratch.bytes(scratch.database)
        #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .storeNewer)
        #expect(scratch.bytes(scratch.database) == before)
    }

    @Test("A store of an older version is migrated once")
    func thatIsOlderIsMigratedOnce() throws {
        do { try GrantStore(directory: scratch.store, create: true).insert(try sample("docs"), by: tester) }
        let next = Schema(steps: Schema.current.steps + ["CREATE TABLE more (x INTEGER) STRICT; INSERT INTO more VALUES (1);"])
        for _ in 0..<2 {
            let store = try GrantStore(directory: scratch.store, create: false, schema: next)
            #expect(try store.grants().count == 1)
            #expect(try store.read { (database) throws(GrantError) in try database.integer("SELECT count(*) FROM more") } == 1)
        }
        #expect(code { _ = try GrantStore(directory: scratch.store, create: false) } == .storeNewer)
    }

    @Test("A store from before rules is migrated with its grants")
    func thatHasNoRulesIsMigrated() throws {
        let grant = try sample("docs")
        do { try GrantStore(directory: scratch.store, create: true).insert(grant, by: tester) }
        do {
            let database = try Database(path: scratch.database, create: false)
            try database.execute(
                "ALTER TABLE grants DROP COLUMN rules; ALTER TABLE grants DROP COLUMN offered; PRAGMA user_version = 7")
        }
        let store = try GrantStore(directory: scratch.store, create: false)
        #expect(try store.grants().map(text) == [text(grant)])
        let rules = try GrantRules(hide: [try RulePattern(Array(".env".utf8))])
        #expect(try store.update(grant.id, rules: RuleChange(rules), by: tester).rules == rules)
        #expect(try store.read { (database) throws(GrantError) in try database.integer("PRAGMA user_version") } == 9)
    }

    @Test("A store whose migration fails stays at its version")
    func whoseMigrationFailsStaysWhatItWas() throws {
        do { _ = try GrantStore(directory: scratch.store, create: true) }
        let broken = Schema(steps: Schema.current.steps + ["CREATE TABLE more (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1);"])
        #expect(code { _ = try GrantStore(directory: scratch.store, create: false, schema: broken) } == .storeDamaged)
        #expect(try GrantStore(directory: scratch.store, create: false).grants().isEmpty)
    }
}

@Suite struct AStoreThatCannotBeUsed {
    let scratch = Scratch()

    @Test("A missing store is created only on request")
    func isNotMadeUnlessAsked() throws {
        #expect(code { _ = try GrantStore(directory: scratch.store, create: false) } == .notFound)
        #expect(access(scratch.store, F_OK) != 0)
        make(scratch.store)
        #expect(code { _ = try GrantStore(directory: scratch.store, create: false) } == .notFound)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.store).isEmpty)
        #expect(code { _ = try GrantStore(directory: "relative", create: true) } == .usage)
        #expect(code { _ = try GrantStore(directory: "/proc/nowhere/store", create: true) } == .storeUnavailable)
        let long = scratch.path + String(repeating: "/" + String(repeating: "x", count: 100), count: 6)
        #expect(code { _ = try GrantStore(directory: long, create: true) } == .storeUnavailable)
    }

    @Test("A new store is accessible to its owner only")
    func isMadeForItsOwnerAlone() throws {
        let store = try GrantStore(directory: scratch.path + "/new/deep/store", create: true)
        for (file, mode) in [("", 0o700), ("/run", 0o700), ("/grants.sqlite", 0o600), ("/key", 0o600), ("/grants.sqlite-wal", 0o600)] {
            var status = stat()
            #expect(lstat(store.directory + file, &status) == 0)
            #expect(status.st_mode & 0o7777 == mode_t(mode), "\(file)")
        }
        #expect(store.runDirectory == store.directory + "/run")
    }

    @Test("A store that other users may write to is refused")
    func becauseOthersMayWriteToItIsRefused() throws {
        do { _ = try GrantStore(directory: scratch.store, create: true) }
        for file in [scratch.store, scratch.database, scratch.store + "/key"] {
            var status = stat()
            stat(file, &status)
            chmod(file, 0o720 | status.st_mode & 0o777)
            #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .permission, "\(file)")
            chmod(file, status.st_mode & 0o777)
        }
        _ = try GrantStore(directory: scratch.store, create: false)
    }

    @Test("A store that belongs to another user is refused", .enabled(if: geteuid() == 0, "giving files away needs root"))
    func becauseItIsSomebodyElsesIsRefused() throws {
        do { _ = try GrantStore(directory: scratch.store, create: true) }
        for file in [scratch.store, scratch.database, scratch.store + "/key"] {
            chown(file, 65534, 65534)
            #expect(code { _ = try GrantStore(directory: scratch.store, create: true) } == .permission, "\(file)")
            chown(file, 0, 0)
        }
    }

    @Test(
        "A store of root behind another user's directory or link is refused",
        .enabled(if: geteuid() == 0, "needs root"))
    func onAWayOfOthers() throws {
        do { _ = try GrantStore(directory: scratch.store, create: true) }
        make(scratch.path + "/theirs")
        make(scratch.path + "/theirs/roots")
        symlink(scratch.store, scratch.path + "/link")
        symlink(scratch.store, scratch.path + "/theirs/link")
        _ = try GrantStore(directory: scratch.path + "/link", create: false)
        chown(scratch.path + "/theirs", 65_534, 65_534)
        for (number, way) in ["theirs/new", "theirs/roots/new", "theirs/roots/deep/new", "theirs/link", "theirs/../store"].enumerated() {
            #expect(code { _ = try GrantStore(directory: "\(scratch.path)/\(way)", create: number % 2 == 0) } == .permission, "\(way)")
        }
        #expect(try FileManager.default.subpathsOfDirectory(atPath: scratch.path + "/theirs").sorted() == ["link", "roots"])
        lchown(scratch.path + "/link", 65_534, 65_534)
        #expect(code { _ = try GrantStore(directory: scratch.path + "/link", create: false) } == .permission)
        // As /tmp is: others may write, and take nothing away.
        chmod(scratch.path, 0o1777)
        _ = try GrantStore(directory: scratch.store, create: false)
        chmod(scratch.path, 0o777)
        #expect(code { _ = try GrantStore(directory: scratch.store, create: false) } == .permission)
    }

    @Test("A store with a link in place of its database is refused")
    func becauseALinkStandsInItsPlaceIsRefused() throws {
        do { _ = try GrantStore(directory: scratch.store, create: true) }
        rename(scratch.database, scratch.path + "/elsewhere.sqlite")
        symlink(scratch.path + "/elsewhere.sqlite", scratch.database)
        #expect(code { _ = try GrantStore(directory: scratch.store, create: false) } == .storeDamaged)
    }

    @Test("A store that another process keeps locked is unavailable until it is unlocked")
    func becauseAnotherHoldsItForLongSaysThatItIsBusy() throws {
        let store = try GrantStore(directory: scratch.store, create: true)
        let other = try Database(path: scratch.database, create: false)
        try other.execute("BEGIN IMMEDIATE")
        #expect(try store.grants().isEmpty)
        try store.read { (database) throws(GrantError) in try database.execute("PRAGMA busy_timeout = 50") }
        #expect(code { try store.insert(try sample("docs"), by: tester) } == .storeUnavailable)
        try other.execute("ROLLBACK")
        try store.insert(try sample("docs"), by: tester)
    }

    private func make(_ path: String) { #expect(mkdir(path, 0o700) == 0) }
}

@Suite(.enabled(if: geteuid() == 0, "mounting needs root")) struct AStoreOnAFilesystem {
    let scratch = Scratch()

    private func mounted(_ options: String, _ body: (String) throws -> Void) throws {
        let place = scratch.path + "/mnt"
        #expect(mkdir(place, 0o700) == 0)
        #expect(mount("none", place, "tmpfs", 0, options) == 0)
        defer { umount2(place, Int32(MNT_DETACH)) }
        try body(place)
    }

    @Test("A store on a full filesystem fails as full and keeps its grants")
    func thatIsFullSaysSoAndKeepsWhatItHad() throws {
        try mounted("size=300k,mode=700") { place in
            let store = try GrantStore(directory: place + "/store", create: true)
            var kept = 0
            var failure: GrantError?
            for number in 0..<5000 where failure == nil {
                do throws(GrantError) {
                    try store.insert(try! sample("grant\(number)"), by: tester)
                    kept += 1
                } catch {
                    failure = error
                }
            }
            #expect(failure?.code == .storeFull)
            #expect(try store.grants().count == kept)
            #expect(try GrantStore(directory: place + "/store", create: false).grants().count == kept)
        }
    }

    @Test("A new store on a full filesystem fails as full and is not created")
    func thatIsFullFromTheStartSaysSo() throws {
        try mounted("size=12k,mode=700") { place in
            #expect(code { _ = try GrantStore(directory: place + "/store", create: true) } == .storeFull)
            #expect(code { _ = try GrantStore(directory: place + "/store", create: false) } == .notFound)
        }
    }

    @Test("A store on a read-only filesystem fails as unavailable when it is written")
    func thatIsReadOnlySaysSoWhenItIsWritten() throws {
        try mounted("size=4m,mode=700") { place in
            let grant = try sample("docs")
            do { try GrantStore(directory: place + "/store", create: true).insert(grant, by: tester) }
            // A child that another test has just forked has this process's files open, for writing as well, until it runs its program.
            var isReadOnly = false
            for _ in 0..<6_000 where !isReadOnly {
                isReadOnly = mount("none", place, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil) == 0
                if !isReadOnly, errno != EBUSY { break }
                if !isReadOnly { usleep(10_000) }
            }
            #expect(isReadOnly)
            #expect(
                code { _ = try GrantStore(directory: place + "/store", create: true).revoke([grant.id], by: tester) } == .storeUnavailable)
        }
    }
}
