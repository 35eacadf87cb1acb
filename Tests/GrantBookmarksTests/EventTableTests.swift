import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantBookmarks

/// Events that can happen to a directory without a mount.
private enum Event: String, CaseIterable {
    case nothing = "nothing"
    case renamed = "renamed"
    case moved = "moved within its filesystem"
    case ancestorRenamed = "a directory above it renamed"
    case movedAway = "moved to another filesystem"
    case deleted = "deleted"
    case remade = "deleted and made again, until the inode number is used again if it ever is"
    case link = "replaced by a link to another directory"
    case restored = "deleted and restored from a backup (`tar`)"
    case synchronised = "deleted and restored from a backup (`rsync`)"
    case taggedAndCopied = "tagged, and copied with its tag (`cp -a`)"
    case taggedAndRestored = "tagged, deleted, and restored with its tag (`tar --xattrs`)"
    case taggedAndRestoredElsewhere = "tagged, deleted, and restored with its tag elsewhere (`rsync -X`)"
    case taggedAndRestoredTwice = "tagged, deleted, and restored with its tag in two places"
    case trashed = "moved to a Trash"
    case snapshot = "replaced by a snapshot of its subvolume"
    case covered = "replaced by a mount: another filesystem mounted over it"
    case readOnly = "its filesystem remounted read-only"
    case unmounted = "its filesystem unmounted"
    case remounted = "… and mounted again under another device number"

    /// The directory no longer exists or is unreachable, so any found directory would be another
    /// one.
    var isEnd: Bool {
        switch self {
        case .nothing, .renamed, .moved, .ancestorRenamed, .taggedAndCopied, .readOnly, .remounted, .snapshot: false
        default: true
        }
    }
}

/// One filesystem with a place of its own for each event.
private final class Ground {
    let scratch = Scratch()
    let kind: String
    let top: String
    private var disk: Disk?
    private var mounted: [String] = []

    init(_ kind: String) throws {
        self.kind = kind
        if let kind = Disk.Kind(rawValue: kind) {
            let disk = try Disk(kind, in: scratch)
            top = try disk.mount(at: "mnt")
            self.disk = disk
        } else {
            top = scratch.directory("mnt")
            try mountOverlay()
        }
        chmod(top, 0o755)
    }

    deinit { for place in mounted.reversed() { try? run("umount", "-l", place) } }

    private func mountOverlay() throws {
        let layers = ["lower", "upper", "work"].map { "\($0)dir=" + scratch.directory($0) }.joined(separator: ",")
        try run("mount", "-t", "overlay", "none", "-o", layers, top)
        mounted.append(top)
    }

    func cover(_ place: String) throws {
        try run("mount", "-t", "tmpfs", "none", place)
        mounted.append(place)
    }

    func uncover() throws { try GrantBookmarksTests.unmount(mounted.removeLast()) }

    func unmount() throws {
        if let disk { return try disk.unmount() }
        mounted.removeAll()
        try GrantBookmarksTests.unmount(top)
    }

    /// The first free device number is taken, so that something else has to have the old one.
    func mountAgain() throws -> Disk {
        let other = try Disk(disk?.image.isEmpty == false && kind != "tmpfs" ? .ext4 : .tmpfs, in: scratch)
        _ = try other.mount(at: "other")
        if let disk { _ = try disk.mount(at: "mnt") } else { try mountOverlay() }
        return other
    }
}

/// Events × filesystems × privileged or not, as docs/semantics/bookmarks.md shows them.
@Suite(.serialized) struct TheTableOfEvents {
    static let kinds = ["ext4", "xfs", "btrfs", "tmpfs", "overlay"]
    static let isComplete = geteuid() == 0 && Disk.imageKinds.count == 3
    static let marks = (
        "<!-- made by TheTableOfEvents: GRANTFS_WRITE_TABLE=1 make test ARGS='--filter TheTableOfEvents' -->", "<!-- end -->"
    )

    @Test(
        "The table of events is that of docs/semantics/bookmarks.md",
        .enabled(if: isComplete, "needs root and the mkfs of ext4, xfs and btrfs"))
    func isWhatTheDocumentationSays() throws {
        var columns: [[Event: String]] = []
        for kind in TheTableOfEvents.kinds { columns.append(try column(kind)) }
        var lines = ["| what happened | " + TheTableOfEvents.kinds.joined(separator: " | ") + " |"]
        lines.append("|" + String(repeating: " --- |", count: TheTableOfEvents.kinds.count + 1))
        for event in Event.allCases {
            lines.append("| \(event.rawValue) | " + columns.map { $0[event] ?? "–" }.joined(separator: " | ") + " |")
        }
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../docs/semantics/bookmarks.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        let start = try #require(text.range(of: TheTableOfEvents.marks.0))
        let end = try #require(text.range(of: TheTableOfEvents.marks.1, range: start.upperBound..<text.endIndex))
        let table = "\n" + lines.joined(separator: "\n") + "\n"
        if ProcessInfo.processInfo.environment["GRANTFS_WRITE_TABLE"] != nil {
            try text.replacingCharacters(in: start.upperBound..<end.lowerBound, with: table).write(
                to: page, atomically: true, encoding: .utf8)
        } else {
            #expect(String(text[start.upperBound..<end.lowerBound]) == table)
        }
    }

    private func column(_ kind: String) throws -> [Event: String] {
        let ground = try Ground(kind)
        var cells: [Event: String] = [:]
        for event in Event.allCases.prefix(while: { $0 != .covered }) {
            if event == .snapshot && kind != "btrfs" { continue }
            let (mark, device) = try happens(event, in: ground.top + "/\(event)", ground)
            cells[event] = cell(mark, event, device)
        }
        let place = ground.top + "/last"
        make(place)
        make(place + "/a")
        let mark = try bookmark(place + "/a")
        let device = try device(place + "/a")
        try ground.cover(place + "/a")
        cells[.covered] = cell(mark, .covered, device)
        try ground.uncover()
        // With none of the words that it was mounted with: util-linux 2.39 and later hand them all to the kernel, and overlayfs refuses.
        try run("mount", "--options-mode", "ignore", "-o", "remount,ro", ground.top)
        cells[.readOnly] = cell(mark, .readOnly, device)
        try run("mount", "--options-mode", "ignore", "-o", "remount,rw", ground.top)
        try ground.unmount()
        cells[.unmounted] = cell(mark, .unmounted, device)
        let other = try ground.mountAgain()
        // A tmpfs that was unmounted is gone.
        cells[.remounted] = cell(mark, kind == "tmpfs" ? .unmounted : .remounted, nil)
        withExtendedLifetime(other) {}
        return cells
    }

    /// Makes a directory in `place`, and lets the event happen to it.
    private func happens(_ event: Event, in place: String, _ ground: Ground) throws -> (Bookmark, dev_t) {
        if event == .snapshot { try run("btrfs", "subvolume", "create", place) } else { make(place) }
        let path = place + "/up/a"
        make(place + "/up")
        make(path)
        let isTagged = "\(event)".hasPrefix("tagged")
        let mark = isTagged ? try tagged(path) : try bookmark(path)
        let device = try device(path)
        switch event {
        case .renamed: move(path, place + "/up/b")
        case .moved:
            make(place + "/there")
            move(path, place + "/there/c")
        case .ancestorRenamed: move(place + "/up", place + "/down")
        case .movedAway: try run("mv", path, ground.scratch.path + "/away-\(UUID())")
        case .deleted: removeDirectory(path)
        case .remade:
            removeDirectory(path)
            let isUsedAgain = try remake(path, until: mark.identity.inode, on: ground.kind)
            if ["ext4", "xfs"].contains(ground.kind) { #expect(isUsedAgain, "the number was not used again, so the case was not tried") }
        case .link:
            make(place + "/secret")
            removeDirectory(path)
            #expect(symlink(place + "/secret", path) == 0)
        case .restored:
            let archive = ground.scratch.path + "/\(UUID()).tar"
            try run("tar", "-C", place + "/up", "-cf", archive, "a")
            removeDirectory(path)
            try run("tar", "-C", place + "/up", "-xpf", archive)
        case .synchronised: try restore(path, ground, "rsync", "-a")
        case .taggedAndCopied: try run("cp", "-a", path, place + "/copy")
        case .taggedAndRestored:
            let archive = ground.scratch.path + "/\(UUID()).tar"
            try run("tar", "--xattrs", "-C", place + "/up", "-cf", archive, "a")
            removeDirectory(path)
            try run("tar", "--xattrs", "-C", place + "/up", "-xpf", archive)
        case .taggedAndRestoredElsewhere: try restore(path, to: [place + "/up/elsewhere"], ground, "rsync", "-aX")
        case .taggedAndRestoredTwice: try restore(path, to: [path, place + "/up/again"], ground, "rsync", "-aX")
        case .trashed:
            make(place + "/.Trash-0")
            make(place + "/.Trash-0/files")
            move(path, place + "/.Trash-0/files/a")
        case .snapshot:
            try run("btrfs", "subvolume", "snapshot", place, place + "-copy")
            move(place, place + "-old")
            move(place + "-copy", place)
        case .nothing, .covered, .readOnly, .unmounted, .remounted: break
        }
        return (mark, device)
    }

    /// Saves the directory elsewhere, deletes it and restores it.
    private func restore(_ path: String, to places: [String]? = nil, _ ground: Ground, _ command: String...) throws {
        let backup = ground.scratch.path + "/backup-\(UUID())"
        try run(command[0], command[1], path + "/", backup)
        removeDirectory(path)
        for place in places ?? [path] { try run(command[0], command[1], backup + "/", place) }
    }

    private func device(_ path: String) throws -> dev_t {
        try FileDescriptor.open(path.utf8, OpenFlags.path).status().st.st_dev
    }

    /// The finding as root and as a user, once if they agree. Only the bookmarked directory is ever
    /// opened, on the filesystem with that device number if it has kept it.
    private func cell(_ mark: Bookmark, _ event: Event, _ device: dev_t?) -> String {
        let findings = [resolve(mark), resolveAsUser(mark)].map { outcome in
            #expect((outcome.inode != nil) == outcome.finding.isUsable, "\(event): \(outcome)")
            if outcome.inode != nil {
                #expect(!event.isEnd, "\(event): \(outcome)")
                #expect(outcome.inode == mark.identity.inode, "\(event): \(outcome)")
                #expect(device == nil || outcome.device == device, "\(event): \(outcome)")
            }
            return "`\(outcome.finding.rawValue)`" + (outcome.copy == nil ? "" : " (copy)")
        }
        return findings[0] == findings[1] ? findings[0] : findings.joined(separator: " / ")
    }
}
