import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantBookmarks

/// Events × filesystems × privileged or not: the finding of each, and that no other directory is opened.
@Suite(.serialized) struct ABookmarkIsResolved {
    let scratch = Scratch()

    private func disk(_ kind: Disk.Kind) throws -> (Disk, String) {
        let disk = try Disk(kind, in: scratch)
        return (disk, try disk.mount(at: "mnt"))
    }

    @Test("A bookmark resolves in place", arguments: Disk.kinds)
    func whereItWas(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        #expect(mark.handle != nil)
        #expect(mark.filesystem.uuid.count == 16 || kind == .here)
        #expect(resolve(mark) == Outcome(mark, is: .ok))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .ok))
        // As it is after it was stored.
        #expect(resolve(try Bookmark(encoded: mark.encoded())) == Outcome(mark, is: .ok))
        withExtendedLifetime(disk) {}
    }

    @Test("A bookmark follows its renamed directory", arguments: Disk.kinds)
    func whenItWasRenamed(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        move(top + "/a", top + "/b")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/b"))
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: top + "/b"))
        make(top + "/a")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/b"))
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: top + "/b"))
        withExtendedLifetime(disk) {}
    }

    @Test("A bookmark follows its directory that moved with a parent", arguments: Disk.kinds)
    func whenItOrWhatIsAboveItWasMoved(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/x")
        make(top + "/x/a")
        make(top + "/y")
        let mark = try bookmark(top + "/x/a")
        move(top + "/x", top + "/y/z")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/y/z/a"))
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: top + "/y/z/a"))
        // A link left at the old place leads there without privileges as well.
        #expect(symlink(top + "/y/z", top + "/x") == 0)
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/y/z/a"))
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: top + "/y/z/a"))
        withExtendedLifetime(disk) {}
    }

    @Test("A directory removed and made again resolves as replaced", arguments: Disk.kinds)
    func whenItWasRemovedAndAnotherMade(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        removeDirectory(top + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .missing))
        // Until the number is used again, where that can be had in a few tries.
        let isUsedAgain = try remake(top + "/a", until: mark.identity.inode, on: kind.rawValue) {
            #expect(resolve(mark) == Outcome(mark, is: .replaced))
            #expect(resolveAsUser(mark) == Outcome(mark, is: .replaced))
        }
        if kind == .ext4 || kind == .xfs { #expect(isUsedAgain, "the number was not used again, so the case was not tried") }
        withExtendedLifetime(disk) {}
    }

    @Test("A link in place of the directory resolves as replaced", arguments: Disk.kinds)
    func whenALinkToAnotherStandsThere(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        make(top + "/secret")
        let mark = try bookmark(top + "/a")
        removeDirectory(top + "/a")
        #expect(symlink(top + "/secret", top + "/a") == 0)
        #expect(resolve(mark) == Outcome(mark, is: .replaced))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .replaced))
        withExtendedLifetime(disk) {}
    }

    @Test("A file in place of the directory resolves as missing", arguments: Disk.kinds)
    func whenAFileStandsThere(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        removeDirectory(top + "/a")
        #expect(FileManager.default.createFile(atPath: top + "/a", contents: nil))
        #expect(resolve(mark) == Outcome(mark, is: .missing))
        withExtendedLifetime(disk) {}
    }

    @Test("A backup in place of the directory is not taken for it", arguments: Disk.kinds)
    func whenItWasRemovedAndRestoredFromABackup(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        try run("cp", "-a", top + "/a", top + "/backup")
        move(top + "/a", top + "/gone")
        move(top + "/backup", top + "/a")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/gone"))
        #expect(resolveAsUser(mark) == Outcome(mark, movedTo: top + "/gone"))
        removeDirectory(top + "/gone")
        #expect(resolve(mark) == Outcome(mark, is: .replaced))
        withExtendedLifetime(disk) {}
    }

    @Test("A bookmark is unavailable where the user may not look")
    func whereThisUserMayNotLook() throws {
        make(scratch.path + "/x")
        make(scratch.path + "/x/a")
        let mark = try bookmark(scratch.path + "/x/a")
        chmod(scratch.path + "/x", 0o600)
        #expect(resolveAsUser(mark) == Outcome(mark, is: .unavailable))
        chmod(scratch.path + "/x", 0o755)
        #expect(resolveAsUser(mark) == Outcome(mark, is: .ok))
    }

    @Test("A bookmark resolves through a held descriptor", arguments: Disk.kinds)
    func throughADescriptorThatIsHeld(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        make(top + "/a")
        let made = try BookmarkResolver().bookmark(directory: (top + "/a").utf8)
        let mark = made.bookmark
        let held = made.release()
        move(top + "/a", top + "/b")
        make(top + "/a")
        #expect(Outcome(BookmarkResolver().resolve(mark, holding: held)) == Outcome(mark, movedTo: top + "/b"))
        removeDirectory(top + "/b")
        #expect(Outcome(BookmarkResolver().resolve(mark, holding: held)) == Outcome(mark, is: .missing))
        let other = try BookmarkResolver().bookmark(directory: (top + "/a").utf8).release()
        #expect(Outcome(BookmarkResolver().resolve(mark, holding: other)) == Outcome(mark, is: .replaced))
        withExtendedLifetime(disk) {}
    }

    @Test("A bookmark resolves a name of any bytes", arguments: Disk.kinds)
    func withANameOfAnyBytes(_ kind: Disk.Kind) throws {
        let (disk, top) = try disk(kind)
        let path = Array(top.utf8) + [0x2F, 0x0A, 0xFF, 0x20] + Array("\\040 (deleted)".utf8)
        #expect(withCString(path) { mkdir($0, 0o755) } == 0)
        let mark = try BookmarkResolver().bookmark(directory: path).bookmark
        #expect(mark.path == path)
        #expect(BookmarkResolver().resolve(mark).finding == .ok)
        #expect(withCString(path) { rmdir($0) } == 0)
        #expect(BookmarkResolver().resolve(mark).finding == .missing)
        withExtendedLifetime(disk) {}
    }

    @Test("Ten thousand bookmarks resolve within the limits of work")
    func tenThousandInTwoSeconds() throws {
        make(scratch.path + "/top")
        var marks: [Bookmark] = []
        let maker = BookmarkResolver()
        // A hundred in each: the kernel looks up forgotten names by reading the parent directory
        // from its start (fs/exportfs/expfs.c).
        for group in 0..<100 {
            make(scratch.path + "/top/\(group)")
            for number in 0..<100 {
                let path = scratch.path + "/top/\(group)/\(number)"
                make(path)
                marks.append(try maker.bookmark(directory: path.utf8).bookmark)
            }
        }
        // What this thread has worked: the machine may have other things to do.
        let worked = { () -> Double in
            var time = timespec()
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
            return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
        }
        // A processor that is shared, or runs slowly just now, makes what it works longer. It is measured by opening as many directories, which took
        // this long where the limits were found.
        let slowness = { () -> Double in
            let start = worked()
            for _ in marks { _ = try? FileDescriptor.open(self.scratch.path.utf8, OpenFlags.path).status() }
            return max(1, (worked() - start) / 0.04)
        }
        let count = { (finding: BookmarkFinding, limit: Double) in
            let before = slowness()
            let start = worked()
            let resolver = BookmarkResolver()
            var found = 0
            for mark in marks where resolver.resolve(mark).finding == finding { found += 1 }
            let seconds = worked() - start
            #expect(found == marks.count)
            #expect(seconds < limit * max(before, slowness()))
            print("resolved \(found) bookmarks as \(finding) in \(seconds) s")
        }
        count(.ok, 2)
        asUser { count(.ok, 2) }
        move(scratch.path + "/top", scratch.path + "/new")
        count(.moved, geteuid() == 0 ? 2 : 6)
        asUser { count(.moved, 6) }
    }
}
