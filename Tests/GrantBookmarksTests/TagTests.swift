import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantBookmarks

@Suite(.serialized) struct ATaggedDirectory {
    let scratch = Scratch()

    /// A filesystem with a tagged directory.
    private func tagged(on kind: Disk.Kind) throws -> (disk: Disk, top: String, mark: Bookmark) {
        let disk = try Disk(kind, in: scratch)
        let top = try disk.mount(at: "mnt")
        make(top + "/a")
        return (disk, top, try GrantBookmarksTests.tagged(top + "/a"))
    }

    @Test("A tagged directory is told from its copies by its identity", arguments: Disk.kinds)
    func isToldFromItsCopiesByItsIdentity(_ kind: Disk.Kind) throws {
        let (disk, top, mark) = try tagged(on: kind)
        try run("cp", "-a", top + "/a", top + "/copy")
        #expect(BookmarkResolver().tag(at: Array((top + "/copy").utf8)) == mark.tag)
        #expect(resolve(mark) == Outcome(mark, is: .ok))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .ok))
        move(top + "/a", top + "/b")
        move(top + "/copy", top + "/a")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/b"))
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: top + "/b"))
        withExtendedLifetime(disk) {}
    }

    @Test("A restored copy with the tag is reported and never entered", arguments: Disk.kinds)
    func isNotEnteredWhenItWasRestored(_ kind: Disk.Kind) throws {
        let (disk, top, mark) = try tagged(on: kind)
        try run("cp", "-a", top + "/a", top + "/copy")
        removeDirectory(top + "/a")
        for outcome in [resolve(mark), resolveAsUser(mark)] { #expect(outcome == Outcome(copyAt: top + "/copy")) }
        // Only who asks for it searches: it is never a way in.
        #expect(Outcome(BookmarkResolver().resolve(mark)) == Outcome(mark, is: .missing))
        // Another directory in the old place makes no difference.
        make(top + "/a")
        for outcome in [resolve(mark), resolveAsUser(mark)] { #expect(outcome == Outcome(copyAt: top + "/copy")) }
        removeDirectory(top + "/a")
        move(top + "/copy", top + "/a")
        for outcome in [resolve(mark), resolveAsUser(mark)] { #expect(outcome == Outcome(copyAt: top + "/a")) }
        try run("cp", "-a", top + "/a", top + "/third")
        for outcome in [resolve(mark), resolveAsUser(mark)] { #expect(outcome == Outcome(mark, is: .ambiguous)) }
        withExtendedLifetime(disk) {}
    }

    @Test("Copies in a trash or with another tag are not found")
    func isNotACopyInATrashNorWithAnotherTag() throws {
        let (_, top, mark) = try tagged(on: .here)
        for name in ["/.Trash-0", "/.Trash-0/files", "/other"] { make(top + name) }
        try run("cp", "-a", top + "/a", top + "/.Trash-0/files/a")
        _ = try GrantBookmarksTests.tagged(top + "/other")
        removeDirectory(top + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .missing))
    }

    @Test("A copy of a tagged directory is found at its path on another volume", arguments: Disk.imageKinds)
    func isLookedForAtItsPathWhenAnotherVolumeHasComeThere(_ kind: Disk.Kind) throws {
        let (disk, top, mark) = try tagged(on: kind)
        try run("cp", "-a", top + "/a", scratch.path + "/backup")
        try disk.unmount()
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        let other = try Disk(kind, in: scratch)
        #expect(try other.mount(at: "mnt") == top)
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        try run("cp", "-a", scratch.path + "/backup", top + "/a")
        #expect(resolve(mark) == Outcome(copyAt: top + "/a"))
        // The volume itself counts once it is mounted.
        try other.unmount()
        _ = try disk.mount(at: "mnt")
        #expect(resolve(mark) == Outcome(mark, is: .ok))
    }

    @Test("A tag is set, replaced and removed only on the bookmarked directory")
    func losesItAndGetsAnother() throws {
        let (_, top, mark) = try tagged(on: .here)
        let path = Array((top + "/a").utf8)
        let other = DirectoryTag.random()
        #expect(try BookmarkResolver().setTag(other, of: mark) == mark.tag)
        #expect(BookmarkResolver().tag(at: path) == other)
        #expect(try BookmarkResolver().setTag(nil, of: mark) == other)
        #expect(try BookmarkResolver().setTag(nil, of: mark) == nil)
        #expect(BookmarkResolver().tag(at: path) == nil)
        move(top + "/a", top + "/b")
        make(top + "/a")
        #expect(throws: Errno(ESTALE)) { try BookmarkResolver().setTag(other, of: mark) }
        #expect(BookmarkResolver().tag(at: path) == nil)
    }
}

@Suite struct AnAncestor {
    let scratch = Scratch()

    private func made(_ names: String...) throws -> Bookmark {
        for name in names { make(scratch.path + "/" + name) }
        return try bookmark(scratch.path + "/" + names.last!)
    }

    @Test("A search finds a directory in its renamed ancestor despite a replacement")
    func thatIsAnotherOneNowIsNotSearched() throws {
        let mark = try made("x", "x/a")
        move(scratch.path + "/x", scratch.path + "/y")
        // The name alone would end the search in there.
        make(scratch.path + "/x")
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: scratch.path + "/y/a"))
    }

    @Test("A search finds a directory in an ancestor that moved far")
    func thatWasMovedFarIsGoneInto() throws {
        let mark = try made("1", "1/2", "1/2/3", "1/2/3/4", "1/up", "1/up/b", "1/up/b/a")
        // A search looks four levels below the nearest remaining directory. This directory is
        // deeper.
        move(scratch.path + "/1/up", scratch.path + "/1/2/3/4/up")
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: scratch.path + "/1/2/3/4/up/b/a"))
        // Renamed in there as well: it is searched for below.
        move(scratch.path + "/1/2/3/4/up/b", scratch.path + "/1/2/3/4/up/c")
        move(scratch.path + "/1/2/3/4/up/c/a", scratch.path + "/1/2/3/4/up/d")
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: scratch.path + "/1/2/3/4/up/d"))
        // Another one with the same number as nothing is nowhere.
        removeDirectory(scratch.path + "/1/2/3/4/up/d")
        #expect(resolveAsUser(mark) == Outcome(mark, is: .missing))
    }
}

@Suite struct AMountThatHoldsADirectory {
    @Test("A mount's claim about the place of a directory is believed only if true")
    func isBelievedOnlyWhereTheDirectoryIs() throws {
        let scratch = Scratch()
        for name in ["/x", "/x/a", "/y", "/other"] { make(scratch.path + name) }
        let mark = try bookmark(scratch.path + "/x/a")
        // Farther than a search looks.
        move(scratch.path + "/x/a", scratch.path + "/y/b")
        make(scratch.path + "/x/a")
        let at = { (place: String) -> Outcome in
            var outcome: Outcome?
            asUser { outcome = Outcome(BookmarkResolver().resolve(mark, heldAt: Array((scratch.path + place).utf8))) }
            return outcome!
        }
        #expect(at("/y/b") == Outcome(mark, movedTo: scratch.path + "/y/b"))
        for place in ["/other", "/x/a", "/nothing", ""] { #expect(at(place) == Outcome(mark, is: .replaced)) }
        #expect(symlink(scratch.path + "/y", scratch.path + "/link") == 0)
        #expect(at("/link/b") == Outcome(mark, is: .replaced))
    }
}
