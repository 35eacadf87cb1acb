import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantBookmarks

/// What happens to whole filesystems.
@Suite(.serialized, .enabled(if: geteuid() == 0, "mounting needs root")) struct ABookmarkOnAVolume {
    let scratch = Scratch()

    @Test("A bookmark waits for its volume and is found under another device number", arguments: Disk.imageKinds)
    func waitsForItAndIsFoundAfterARemountUnderAnotherDeviceNumber(_ kind: Disk.Kind) throws {
        let disk = try Disk(kind, in: scratch)
        var top = try disk.mount(at: "mnt")
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        let whole = try bookmark(top)
        try disk.unmount()
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        #expect(resolve(whole) == Outcome(whole, is: .unavailable))
        // The directory below the mountpoint is another one.
        make(top + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .unavailable))
        removeDirectory(top + "/a")

        // The first free loop device is taken, so that the next one has another number.
        let other = try Disk(.ext4, in: scratch)
        _ = try other.mount(at: "other")
        _ = try disk.mount(at: "mnt")
        #expect(resolve(mark) == Outcome(mark, is: .ok))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .ok))
        #expect(resolve(whole) == Outcome(whole, is: .ok))

        try disk.unmount()
        top = try disk.mount(at: "elsewhere", options: ",ro")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/a"))
        #expect(resolve(whole) == Outcome(whole, movedTo: top))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .missing))
    }

    @Test("A bookmark is ambiguous beside a copy of its volume", arguments: Disk.imageKinds.filter { $0 != .btrfs })
    func isAmbiguousWhenACopyOfTheVolumeIsThereToo(_ kind: Disk.Kind) throws {
        let disk = try Disk(kind, in: scratch)
        let top = try disk.mount(at: "mnt")
        make(top + "/a")
        make(top + "/b")
        let (a, b) = (try bookmark(top + "/a"), try bookmark(top + "/b"))
        try disk.unmount()
        let copy = try Disk(kind, in: scratch, copyOf: disk)
        let copyTop = try copy.mount(at: "copy")
        removeDirectory(copyTop + "/b")
        // The copy alone cannot be told from the volume.
        #expect(resolve(a) == Outcome(a, movedTo: copyTop + "/a"))
        _ = try disk.mount(at: "mnt")
        #expect(resolve(a) == Outcome(a, is: .ambiguous))
        #expect(resolveAsUser(a) == Outcome(a, is: .ambiguous))
        move(top + "/a", top + "/c")
        #expect(resolve(a) == Outcome(a, is: .ambiguous))
        #expect(resolve(b) == Outcome(b, is: .ok))
    }

    @Test("A bookmark is unavailable while a filesystem is mounted over its directory", arguments: Disk.kinds)
    func isUnavailableWhileSomethingIsMountedOverIt(_ kind: Disk.Kind) throws {
        let disk = try Disk(kind, in: scratch)
        let top = try disk.mount(at: "mnt")
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        try run("mount", "-t", "tmpfs", "none", top + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .unavailable))
        try run("umount", "-l", top + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .ok))
    }

    @Test("A bookmark is not found outside the mounted part of its volume", arguments: Disk.imageKinds)
    func isNotFoundOutsideWhatIsMountedOfTheVolume(_ kind: Disk.Kind) throws {
        let disk = try Disk(kind, in: scratch)
        let top = try disk.mount(at: "mnt")
        for name in ["/part", "/part/in", "/out"] { make(top + name) }
        let (inside, outside) = (try bookmark(top + "/part/in"), try bookmark(top + "/out"))
        let part = scratch.directory("part")
        try run("mount", "--bind", top + "/part", part)
        defer { try? run("umount", "-l", part) }
        try disk.unmount(isElsewhere: true)
        #expect(resolve(inside) == Outcome(inside, movedTo: part + "/in"))
        #expect(resolve(outside) == Outcome(outside, is: .unavailable))
    }

    @Test("A subvolume is told from its snapshot", .enabled(if: Disk.available(.btrfs)))
    func tellsASubvolumeFromItsSnapshot() throws {
        let disk = try Disk(.btrfs, in: scratch)
        let top = try disk.mount(at: "mnt")
        try run("btrfs", "subvolume", "create", top + "/sub")
        make(top + "/sub/a")
        let (mark, whole) = (try bookmark(top + "/sub/a"), try bookmark(top + "/sub"))
        try run("btrfs", "subvolume", "snapshot", top + "/sub", top + "/snap")
        #expect(resolve(mark) == Outcome(mark, is: .ok))
        move(top + "/sub", top + "/old")
        move(top + "/snap", top + "/sub")
        #expect(resolve(mark) == Outcome(mark, movedTo: top + "/old/a"))
        #expect(resolve(whole) == Outcome(whole, movedTo: top + "/old"))
        #expect(resolveAsUser(mark) == Outcome(mark, is: .replaced))
        try run("btrfs", "subvolume", "delete", top + "/old")
        #expect(resolve(mark) == Outcome(mark, is: .replaced))
    }

    @Test("A bookmark on an overlay without file handles is weak")
    func isWeakOnAnOverlayWithoutHandles() throws {
        for name in ["lower", "upper", "work", "merged"] { make(scratch.path + "/" + name) }
        make(scratch.path + "/lower/a")
        let merged = scratch.path + "/merged"
        let layers = ["lowerdir=\(scratch.path)/lower", "upperdir=\(scratch.path)/upper", "workdir=\(scratch.path)/work"]
        try run("mount", "-t", "overlay", "none", "-o", layers.joined(separator: ","), merged)
        defer { try? run("umount", "-l", merged) }
        let mark = try bookmark(merged + "/a")
        #expect(mark.handle == nil)
        #expect(resolve(mark) == Outcome(mark, is: .weak))
        removeDirectory(merged + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .missing))
        make(merged + "/a")
        #expect(resolve(mark) == Outcome(mark, is: .replaced))
    }

    @Test("A filesystem without UUID is known by its device during this boot", .enabled(if: Disk.available(.ext4)))
    func withoutAUUIDIsKnownByItsDeviceForThisBoot() throws {
        let disk = try Disk(.ext4, in: scratch)
        try run("mkfs.ext4", "-F", "-q", "-U", "clear", disk.image)
        let top = try disk.mount(at: "mnt")
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        #expect(mark.filesystem.uuid.isEmpty && mark.filesystem.fsid == nil)
        #expect(mark.filesystem.source != nil && mark.filesystem.bootID == Boot.id)
        // Another one without a UUID is not taken for a copy of it, beside it or in its place.
        let other = try Disk(.ext4, in: scratch, copyOf: disk)
        _ = try other.mount(at: "other")
        make(scratch.path + "/other/a")
        #expect(resolve(mark) == Outcome(mark, is: .ok))
        try disk.unmount()
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        try run("mount", "--bind", scratch.path + "/other", top)
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
        try unmount(top)
    }

    @Test("A bookmark on tmpfs is valid only for its boot")
    func onATmpfsIsOfItsBoot() throws {
        let disk = try Disk(.tmpfs, in: scratch)
        let top = try disk.mount(at: "mnt")
        make(top + "/a")
        var mark = try bookmark(top + "/a")
        #expect(mark.filesystem.bootID == Boot.id)
        #expect(resolve(mark) == Outcome(mark, is: .ok))
        mark.filesystem.bootID = "another boot"
        #expect(resolve(mark) == Outcome(mark, is: .unavailable))
    }

    @Test("A bookmark on tmpfs is not found on another tmpfs")
    func onATmpfsIsNotFoundOnAnotherOne() throws {
        let disk = try Disk(.tmpfs, in: scratch)
        let top = try disk.mount(at: "mnt")
        make(top + "/a")
        let mark = try bookmark(top + "/a")
        try disk.unmount()
        _ = try disk.mount(at: "mnt")
        make(top + "/a")
        #expect(resolve(mark).finding == .unavailable)
        #expect(resolve(mark).inode == nil)
    }

    @Test("A mount watch notices a mount and an unmount")
    func beingMountedIsNoticed() throws {
        let watch = try MountWatch()
        _ = watch.changed(within: 0)
        let disk = try Disk(.tmpfs, in: scratch)
        _ = try disk.mount(at: "mnt")
        let mounted = watch.changed(within: 1000)
        #expect(mounted)
        try disk.unmount()
        let unmounted = watch.changed(within: 1000)
        #expect(unmounted)
    }
}
