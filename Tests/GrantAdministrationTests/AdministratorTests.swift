import Foundation
import GrantModel
import GrantStore
import GrantSystem
import Testing

@testable import GrantAdministration
@testable import GrantMounts

@Suite struct AdministratorTests {
    @Test("A listed grant has its path and state")
    func aGrantIsListedWithWhereItIs() throws {
        let bench = try Bench()
        let grant = try bench.grant("docs")
        let listed = try bench.administrator.list()
        #expect(listed.map(\.grant.id) == [grant.id])
        #expect(listed[0].grant.name.description == "docs")
        #expect(listed[0].state == .active)
        #expect(listed[0].path == Array((bench.root + "/docs").utf8))
        #expect(!listed[0].isStale)
    }

    @Test("A grant of a removed directory is listed as unavailable at its recorded path")
    func aMovedDirectoryIsFoundAndOneThatIsGoneIsUnavailable() throws {
        let bench = try Bench()
        try bench.grant("docs")
        try FileManager.default.moveItem(atPath: bench.root + "/docs", toPath: bench.root + "/papers")
        let moved = try #require(try bench.administrator.list().first)
        if moved.finding == .moved {
            #expect(moved.isStale)
            #expect(moved.path == Array((bench.root + "/papers").utf8))
        }
        try FileManager.default.removeItem(atPath: bench.root + "/papers")
        let gone = try #require(try bench.administrator.list().first)
        #expect(gone.state == .unavailable)
        #expect(gone.path == Array((bench.root + "/docs").utf8))
    }

    @Test("Revoked and expired grants are listed only on request")
    func revokedAndExpiredOnesAreListedOnDemand() throws {
        let bench = try Bench()
        let first = try bench.grant("a")
        try bench.grant("b", expires: Instant(seconds: 1))
        try bench.grant("c")
        _ = try bench.administrator.revoke([first])
        #expect(try bench.administrator.list().map(\.grant.name.description) == ["c"])
        #expect(try bench.administrator.list(all: true).map(\.state) == [.revoked, .expired, .active])
        _ = try bench.administrator.restore(try bench.store.grants())
        #expect(try bench.administrator.list().count == 3)
    }

    @Test("A second revocation has no effect, and a removal frees the name")
    func revokingIsIdempotentAndRemovingForgets() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        #expect(try bench.administrator.revoke([grant]).map(\.grant.state) == [.revoked])
        #expect(try bench.administrator.revoke([grant]).map(\.grant.state) == [.revoked])
        #expect(try bench.administrator.remove([grant]).count == 1)
        #expect(try bench.store.grants().isEmpty)
        try bench.grant("a")
    }

    @Test("The access, name and expiry of a grant can be changed")
    func aGrantIsChanged() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        let name = try GrantName(chosen: Array("z".utf8))
        let changed = try bench.administrator.set(grant, access: .readOnly, name: name, expires: .some(Instant(seconds: 9_000_000_000)))
        #expect(changed.grant.access == .readOnly)
        #expect(changed.grant.name == name)
        #expect(changed.grant.expires == Instant(seconds: 9_000_000_000))
        #expect(try bench.administrator.set(grant, access: nil, name: nil, expires: .some(nil)).grant.expires == nil)
    }

    @Test("A grant is selected by its name, its ID or the start of its ID")
    func aSelectorIsANameOrAnID() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        let other = try bench.grant("b", as: "a", view: "second")
        let id = grant.id.description
        for text in [id, String(id.prefix(8)), id.uppercased()] {
            #expect(try bench.administrator.select([try bench.selector(text)]).map(\.id) == [grant.id])
        }
        #expect(try bench.administrator.select([try bench.selector("a")], view: try ViewName("second")).map(\.id) == [other.id])
        #expect(try bench.administrator.select([try bench.selector(id), try bench.selector(id)]).count == 1)
        let ambiguous = #expect(throws: GrantError.self) { try bench.administrator.select([try bench.selector("a")]) }
        #expect(ambiguous?.code == .ambiguous)
        for text in [String(id.prefix(7)), "nothing", id.dropLast() + "x"] {
            let unknown = #expect(throws: GrantError.self) { try bench.administrator.select([try bench.selector(String(text))]) }
            #expect(unknown?.code == .notFound)
        }
        for text in ["", ".", "..", "a/b", String(repeating: "x", count: 256)] {
            let wrong = #expect(throws: GrantError.self) { try bench.selector(text) }
            #expect(wrong?.exitStatus == 2)
        }
    }

    @Test("A name equal to an ID does not hide the grant with that ID")
    func aNameThatPosesAsAnIDDoesNotHideIt() throws {
        let bench = try Bench()
        let grant = try bench.grant("a")
        let poser = try bench.grant("b", as: grant.id.description)
        #expect(try bench.administrator.select([try bench.selector(grant.id.description)]).map(\.id) == [grant.id])
        #expect(try bench.administrator.select([try bench.selector(poser.id.description)]).map(\.id) == [poser.id])
    }
}

@Suite struct ReachingTests {
    private func names(_ bench: Bench, _ path: String) throws -> [String] {
        try bench.administrator.grants(reaching: Array((bench.root + "/" + path).utf8)).map(\.name.description).sorted()
    }

    @Test("A path selects the grants of its parents and children")
    func parentsAndChildrenReachADirectory() throws {
        let bench = try Bench()
        try bench.grant("a", as: "parent")
        try bench.grant("a/b", as: "itself", view: "second")
        try bench.grant("a/b/c", as: "child")
        try bench.grant("a/bb", as: "neighbour")
        #expect(try names(bench, "a/b") == ["child", "itself", "parent"])
        #expect(try names(bench, "a/b/../b/./c") == ["child", "itself", "parent"])
        #expect(try names(bench, "a/none/at/all") == ["parent"])
        #expect(try names(bench, "elsewhere") == [])
        #expect(try names(bench, "") == ["child", "itself", "neighbour", "parent"])
    }

    @Test("A path selects its grants through links and renames")
    func linksAndRenamesAreSeenThrough() throws {
        let bench = try Bench()
        try bench.grant("a/b", as: "itself")
        try FileManager.default.createSymbolicLink(atPath: bench.root + "/link", withDestinationPath: bench.root + "/a")
        #expect(try names(bench, "link/b/x") == ["itself"])
        try FileManager.default.moveItem(atPath: bench.root + "/a", toPath: bench.root + "/z")
        #expect(try names(bench, "z/b") == ["itself"])
        try FileManager.default.removeItem(atPath: bench.root + "/z")
        #expect(try names(bench, "a/b/c") == ["itself"])
    }
}

@Suite struct PlacementTests {
    @Test("The store and its parents cannot be granted")
    func theStoreIsNotGranted() throws {
        let bench = try Bench()
        for name in ["store", "store/run", "."] {
            let error = #expect(throws: GrantError.self) { try bench.grant(name, as: "x") }
            #expect(error?.code == .invalidDirectory)
        }
        #expect(try bench.store.grants().isEmpty)
    }

    @Test("Places are compared by their position in their filesystem")
    func placesAreComparedWithinTheirFilesystem() throws {
        let table = MountTable(
            parsing: Array(
                """
                1 0 8:1 / / rw - ext4 /dev/a rw
                2 1 8:2 / /home rw - ext4 /dev/b rw
                3 1 8:2 /user/docs /srv rw - ext4 /dev/b rw
                4 1 0:9 / /mnt/v rw - fuse.grantfs v rw
                """.utf8))
        let place = { (path: String) in Place(Array(path.utf8), in: table) }
        #expect(place("/home/user").holds(place("/srv/x")))
        #expect(place("/srv").holds(place("/home/user/docs")))
        #expect(place("/srv/x").meets(place("/home/user/docs/x/y")))
        #expect(!place("/srv/x").meets(place("/home/user/docs/xx")))
        #expect(!place("/home/user/docs2").meets(place("/srv")))
        #expect(place("/").holds(place("/srv")))
        #expect(place("/home").device != place("/").device)
        let covered = Place(below: Array("/mnt/v".utf8), in: table)
        #expect(place("/mnt").holds(covered))
        #expect(covered.device == place("/").device)
        #expect(place("/mnt/v/x").device != covered.device)
    }

    @Test("The mount table finds the filesystems below a directory through nested mounts")
    func reachedPlaces() throws {
        let table = MountTable(
            parsing: Array(
                """
                1 0 8:1 / / rw - ext4 /dev/a rw
                2 1 8:2 /other /srv/a/mnt rw - ext4 /dev/b rw
                3 2 8:3 / /srv/a/mnt/deep rw - ext4 /dev/c rw
                4 1 8:1 /srv /bound rw - ext4 /dev/a rw
                5 4 8:4 /x /bound/a/y rw - ext4 /dev/d rw
                6 1 8:5 / /srv/apart rw - ext4 /dev/e rw
                """.utf8))
        let reached = ReachedPlaces(table).from(Array("/srv/a".utf8))
        #expect(
            reached.map { String(decoding: $0.path, as: UTF8.self) }.sorted() == ["/bound/a/y", "/srv/a", "/srv/a/mnt", "/srv/a/mnt/deep"])
        #expect(String(decoding: reached.first { $0.device?.minor == 2 }?.pathInFilesystem ?? [], as: UTF8.self) == "/other")
    }

    @Test("A mountpoint is prepared or refused with a reason")
    func aMountpointIsPreparedOrRefused() throws {
        let bench = try Bench()
        let view = ViewName.standard
        try bench.grant("docs")
        let empty = try bench.directory("empty")
        _ = try bench.directory("docs/inside")
        #expect(FileManager.default.createFile(atPath: bench.root + "/file", contents: nil))
        _ = try bench.directory("full/of")
        try FileManager.default.createSymbolicLink(atPath: bench.root + "/link", withDestinationPath: "empty")
        for name in ["empty", "link", "./docs/../empty/", "//empty//."] {
            let mountpoint = try Mountpoint(Array((bench.root + "/" + name).utf8))
            try mountpoint.prepare(for: .one(view), store: bench.store) { _ in Issue.record("nothing to clean") }
            #expect(mountpoint.path == Array(empty.utf8))
        }
        for (name, words) in [
            ("none", "there is no such directory"), ("file", "not a directory"), ("full", "not empty"), ("docs/inside", "inside the grant"),
            ("docs", "not empty"), ("", "not empty"),
        ] {
            let error = #expect(throws: GrantError.self) {
                try Mountpoint(Array((bench.root + "/" + name).utf8)).prepare(for: .one(view), store: bench.store) { _ in }
            }
            #expect(error?.exitStatus == 1)
            #expect(error?.description.contains(words) == true, "\(name): \(error?.description ?? "")")
        }
        let mounted = #expect(throws: GrantError.self) {
            try Mountpoint(Array("/proc".utf8)).prepare(for: .one(view), store: bench.store) { _ in }
        }
        #expect(mounted?.description.contains("mounted there already") == true)
    }

    /// A command that has a mount of its own is not to wait for directories and mounts of others.
    @Test("A temporary mountpoint is prepared without a probe of directories")
    func aTemporaryMountpointIsPreparedWithoutALookAtAnybodysDirectory() throws {
        let bench = try Bench()
        try bench.grant("docs")
        let empty = try Mountpoint(Array(try bench.directory("empty").utf8))
        let inside = try Mountpoint(Array(try bench.directory("docs/inside").utf8))
        let trace = bench.root + "/looked"
        let probe = DirectoryProbe.helper(program: "/bin/sh", arguments: ["sh", "-c", ": >\(trace)"])
        try empty.prepare(for: .one(.standard), store: bench.store, probe: probe, isTemporary: true) { _ in }
        #expect(!FileManager.default.fileExists(atPath: trace))
        let error = #expect(throws: GrantError.self) {
            try inside.prepare(for: .one(.standard), store: bench.store, probe: probe, isTemporary: true) { _ in }
        }
        #expect(error?.description.contains("inside the grant") == true, "by where it was last seen")
        try empty.prepare(for: .one(.standard), store: bench.store, probe: probe) { _ in }
        #expect(FileManager.default.fileExists(atPath: trace), "what is not temporary is looked at")
    }
}
