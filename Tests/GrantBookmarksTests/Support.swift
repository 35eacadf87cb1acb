import CGrantSystem
import Foundation
import GrantModel
import GrantSystem
import TestSupport
import Testing

@testable import GrantBookmarks

/// A directory of the test's own, gone with the value.
final class Scratch: Sendable {
    let path: String

    init() {
        Machine.takeUsualUmask()
        var template = Array((NSTemporaryDirectory() + "/grantfs-test-XXXXXX").utf8CString)
        path = template.withUnsafeMutableBufferPointer { buffer in
            mkdtemp(buffer.baseAddress!)
            return String(cString: realpath(buffer.baseAddress!, nil))
        }
        chmod(path, 0o755)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func directory(_ name: String) -> String {
        try? FileManager.default.createDirectory(atPath: path + "/" + name, withIntermediateDirectories: true)
        return path + "/" + name
    }
}

/// A filesystem of the test's own, mounted in `scratch`, unmounted with the value.
final class Disk {
    enum Kind: String, CaseIterable, Sendable {
        case ext4, xfs, btrfs, tmpfs
        /// A directory on the filesystem that temporary files are on.
        case here
    }

    let kind: Kind
    let image: String
    private(set) var mountpoint: String?
    private let scratch: Scratch

    /// Skips nothing: making images needs root and the mkfs of the type, see `available`.
    init(_ kind: Kind, in scratch: Scratch, copyOf other: Disk? = nil) throws {
        self.kind = kind
        self.scratch = scratch
        image = scratch.path + "/\(UUID()).img"
        if let other {
            try run("cp", "--sparse=always", other.image, image)
        } else if kind != .tmpfs && kind != .here {
            try run("truncate", "-s", kind == .ext4 ? "32M" : "400M", image)
            try run("mkfs.\(kind.rawValue)", kind == .ext4 ? "-F" : "-f", "-q", image)
        }
    }

    static func available(_ kind: Kind) -> Bool {
        if kind == .here { return true }
        if geteuid() != 0 { return false }
        if kind == .tmpfs { return true }
        return ["/usr/sbin/", "/sbin/", "/usr/bin/"].contains { access($0 + "mkfs.\(kind.rawValue)", X_OK) == 0 }
    }

    static var kinds: [Kind] { Kind.allCases.filter(available) }
    static var imageKinds: [Kind] { [.ext4, .xfs, .btrfs].filter(available) }

    func mount(at name: String, options: String = "") throws -> String {
        let place = scratch.directory(name)
        mountpoint = place
        switch kind {
        case .here: break
        case .tmpfs: try run("mount", "-t", "tmpfs", "none", place)
        default: try run("mount", "-o", "loop" + (kind == .xfs ? ",nouuid" : "") + options, image, place)
        }
        return place
    }

    /// `isElsewhere`: a part of it is mounted at another place as well, and stays so.
    func unmount(isElsewhere: Bool = false) throws {
        guard let place = mountpoint, kind != .here else { return }
        try GrantBookmarksTests.unmount(place)
        #expect(MountTable(parsing: try File.contents(of: "/proc/self/mountinfo".utf8)).entry(mountpoint: Array(place.utf8)) == nil)
        mountpoint = nil
        // A sandbox of another test may still have this filesystem mounted. The kernel releases a
        // loop device a moment after its filesystem.
        if !isElsewhere { try eventually("nobody has \(image) mounted") { !isAttached } }
    }

    /// Whether a loop device still has the image.
    private var isAttached: Bool {
        if image.isEmpty || kind == .tmpfs { return false }
        return ((try? FileManager.default.contentsOfDirectory(atPath: "/sys/block")) ?? []).contains { device in
            device.hasPrefix("loop") && Processes.kernelText("/sys/block/\(device)/loop/backing_file") == image + "\n"
        }
    }

    deinit {
        if let place = mountpoint, kind != .here { try? run("umount", "-l", place) }
    }
}

func run(_ command: String...) throws {
    try Command.run(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"] + command, within: 120).orThrow()
}

/// Waits until the condition holds. After a minute the test fails.
func eventually(_ what: String, _ condition: () throws -> Bool) throws {
    let deadline = Clock.monotonic + 60_000_000_000
    while try !condition() {
        if Clock.monotonic > deadline { throw TestFailure("not within a minute: \(what)") }
        usleep(5_000)
    }
}

/// A process that reads all mounts, or a forked child before its exec, keeps it busy for a moment.
func unmount(_ place: String) throws {
    try eventually("\(place) is unmounted") {
        if umount2(place, 0) == 0 { return true }
        if errno != EBUSY { throw TestFailure("\(place): \(Errno(errno))") }
        return false
    }
}

/// Waits until the clock of the kernel's file times has advanced. It moves in steps of
/// milliseconds, and a file made afterwards has another birth time.
func waitForAnotherBirthTime() {
    func now() -> Int {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME_COARSE, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
    let start = now()
    while now() == start { usleep(1_000) }
}

/// Makes and removes a directory at `path` until it has the inode number. ext4 and xfs reuse a number soon, xfs only after a kernel
/// thread has freed it. Other filesystems get a few tries. `look` sees each directory.
func remake(_ path: String, until inode: UInt64, on kind: String, _ look: () throws -> Void = {}) throws -> Bool {
    let isSure = ["ext4", "xfs"].contains(kind)
    let deadline = Clock.monotonic + 60_000_000_000
    for number in 0... {
        waitForAnotherBirthTime()
        make(path)
        try look()
        if try bookmark(path).identity.inode == inode { return true }
        if number >= 40, !isSure || Clock.monotonic > deadline { return false }
        removeDirectory(path)
    }
    return false
}

func make(_ path: String) { #expect(mkdir(path, 0o755) == 0, "\(path): \(Errno(errno))") }
func move(_ path: String, _ other: String) { #expect(rename(path, other) == 0, "\(path): \(Errno(errno))") }
func removeDirectory(_ path: String) { #expect(rmdir(path) == 0, "\(path): \(Errno(errno))") }

func bookmark(_ path: String) throws -> Bookmark { try BookmarkResolver().bookmark(directory: path.utf8).bookmark }

/// What a resolution gave, in a form to compare.
struct Outcome: Equatable, CustomStringConvertible {
    var finding: BookmarkFinding
    var path: String?
    /// The inode that was opened.
    var inode: UInt64?
    var renewedPath: String?
    /// Where another directory carries the tag.
    var copy: String?
    /// The device of the opened directory. It differs in a snapshot or a copy of the filesystem.
    var device: dev_t?

    static func == (left: Outcome, right: Outcome) -> Bool {
        (left.finding, left.path, left.inode, left.renewedPath, left.copy)
            == (right.finding, right.path, right.inode, right.renewedPath, right.copy)
    }

    var description: String { "\(finding) path: \(path ?? "-") inode: \(inode ?? 0) renewed: \(renewedPath ?? "-") copy: \(copy ?? "-")" }

    init(_ resolved: consuming ResolvedBookmark) {
        finding = resolved.finding
        path = resolved.path.map { String(decoding: $0, as: UTF8.self) }
        renewedPath = resolved.renewed.map { String(decoding: $0.path, as: UTF8.self) }
        copy = resolved.copy.map { String(decoding: $0, as: UTF8.self) }
        if let descriptor = resolved.takeDescriptor(), let status = try? descriptor.status() {
            (inode, device) = (status.st.st_ino.asUInt64, status.st.st_dev)
        }
    }

    init(_ bookmark: Bookmark, is finding: BookmarkFinding) {
        self.finding = finding
        if finding == .ok || finding == .weak {
            path = String(decoding: bookmark.path, as: UTF8.self)
            inode = bookmark.identity.inode
        }
    }

    init(copyAt place: String) {
        finding = .replaced
        copy = place
    }

    init(_ bookmark: Bookmark, movedTo place: String) {
        finding = .moved
        path = place
        renewedPath = place
        inode = bookmark.identity.inode
    }
}

extension ino_t {
    var asUInt64: UInt64 { UInt64(self) }
}

/// As commands do it. The short way of the library must come to the same result.
func resolve(_ bookmark: Bookmark) -> Outcome {
    let outcome = Outcome(BookmarkResolver().resolve(bookmark, copies: true))
    let isThere = bookmark.document == nil && (outcome.finding == .ok || outcome.finding == .weak)
    #expect(BookmarkResolver().isAtRecordedPath(bookmark) == isThere, "\(outcome)")
    return outcome
}

/// The same as a user without privileges: the kernel takes the capabilities for files from this thread with its fsuid.
func resolveAsUser(_ bookmark: Bookmark) -> Outcome {
    var outcome: Outcome?
    asUser {
        #expect(!ProcessCapability.has(2))
        outcome = resolve(bookmark)
    }
    return outcome!
}

/// Tags a directory, as `grantfs grant --tag` does.
func tagged(_ path: String) throws -> Bookmark {
    var mark = try bookmark(path)
    mark.tag = .random()
    _ = try BookmarkResolver().setTag(mark.tag, of: mark)
    return mark
}

func becomeUser(_ id: uid_t) {
    _ = clinux_thread_setfsgid(id)
    _ = clinux_thread_setfsuid(id)
}
