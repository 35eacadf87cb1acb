import Foundation
import GrantModel
@testable import GrantSystem
import Testing

@testable import GrantBookmarks

@Suite struct ABookmarkIsMade {
    let scratch = Scratch()

    private func refusal(_ path: [UInt8]) -> GrantError? {
        do throws(GrantError) {
            _ = try BookmarkResolver().bookmark(directory: path)
            return nil
        } catch {
            return error
        }
    }

    @Test("A bookmark has the canonical path of its directory")
    func ofACanonicalPathWhateverLeadsThere() throws {
        make(scratch.path + "/a")
        #expect(symlink("a", scratch.path + "/link") == 0)
        let made = try BookmarkResolver().bookmark(directory: (scratch.path + "/./link/../a//").utf8)
        #expect(made.bookmark.path == Array((scratch.path + "/a").utf8))
        #expect(made.bookmark.owner == geteuid())
        #expect(made.bookmark.identity.birthTime != nil)
        #expect(try bookmark(scratch.path + "/link").path == made.bookmark.path)
        #expect(try bookmark("/").path == [0x2F])
    }

    @Test("A bookmark records the ancestors and the creator")
    func withWhatIsAboveItAndWhoMadeIt() throws {
        make(scratch.path + "/up")
        make(scratch.path + "/up/a")
        let made = try bookmark(scratch.path + "/up/a")
        let origin = try #require(made.origin)
        #expect(origin.madeBy == getuid())
        #expect(origin.bootID == Boot.id)
        #expect(origin.ancestors.count == made.path.count { $0 == 0x2F })
        #expect(origin.ancestors.first?.inode == (try bookmark(scratch.path + "/up")).identity.inode)
        move(scratch.path + "/up/a", scratch.path + "/b")
        let renewed = BookmarkResolver().resolve(made).renewed
        #expect(renewed?.origin?.ancestors == Array(origin.ancestors.dropFirst()))
    }

    @Test("A bookmark of a file or of a missing path is refused")
    func notOfWhatIsNoDirectoryOrNotThere() throws {
        #expect(FileManager.default.createFile(atPath: scratch.path + "/file", contents: nil))
        #expect(mkfifo(scratch.path + "/fifo", 0o644) == 0)
        for (name, cause) in [
            ("/nothing", "there is no such directory"), ("/file", "it is not a directory"), ("/fifo", "it is not a directory"),
            ("/file/below", "it is not a directory"),
        ] {
            let error = refusal(Array((scratch.path + name).utf8))
            #expect(error?.code == .invalidDirectory)
            #expect(error?.cause == cause)
        }
        for path in [[], [0x2F, 0], Array(repeating: 0x2F, count: 5000)] as [[UInt8]] { #expect(refusal(path)?.code == .invalidDirectory) }
    }

    @Test("A bookmark of an unreadable directory is refused")
    func notOfWhatMayNotBeRead() throws {
        make(scratch.path + "/closed")
        chmod(scratch.path + "/closed", 0o311)
        var error: GrantError?
        asUser { error = refusal(Array((scratch.path + "/closed").utf8)) }
        chmod(scratch.path + "/closed", 0o755)
        #expect(error?.code == .invalidDirectory)
        #expect(error?.cause?.hasPrefix("it cannot be read") == true)
    }
}

@Suite struct TheMountTable {
    static let text = """
        22 27 0:21 / /proc rw,relatime shared:5 master:2 - proc proc rw
        27 1 254:0 / / rw - ext4 /dev/vda rw,discard
        40 27 8:17 /sub\\040dir /mnt/a\\134b\\012c ro,nosuid - fuse.sshfs me@host:/x\\040y rw,user_id=0
        41 27 8:17 / /mnt rw - tmpfs  rw
        42 41 8:18 / /mnt rw - xfs /dev/x
        a line that is none
        1 2 3 - x
        """
    let table = MountTable(parsing: Array(TheMountTable.text.utf8))

    @Test("The mount table parses every valid line")
    func readsEveryLineThatIsOne() {
        #expect(table.entries.map(\.id) == [22, 27, 40, 41, 42])
        #expect(table.entry(id: 22)?.type == "proc")
        let entry = table.entry(id: 40)
        #expect(entry?.root == Array("/sub dir".utf8))
        #expect(entry?.mountpoint == Array("/mnt/a\\b\nc".utf8))
        #expect(entry?.source == Array("me@host:/x y".utf8))
        #expect(entry?.options == "ro,nosuid")
        #expect(entry?.superOptions == "rw,user_id=0")
        #expect(entry?.major == 8 && entry?.minor == 17 && entry?.parent == 27)
        #expect(table.entry(id: 41)?.source == [])
    }

    @Test("The mount table finds the mount of a path")
    func findsTheMountOfAPath() {
        #expect(table.entry(mountpoint: Array("/mnt".utf8))?.id == 42)
        #expect(table.entry(holding: Array("/mnt/x".utf8))?.id == 42)
        #expect(table.entry(holding: Array("/mntx".utf8))?.id == 27)
        #expect(table.entry(holding: Array("/".utf8))?.id == 27)
    }

    @Test("The mount table has the mounts of this process")
    func isThereForThisProcess() throws {
        let current = try MountTable.current()
        #expect(current.entry(mountpoint: [0x2F]) != nil)
        #expect(current.entry(holding: Array("/proc/self".utf8))?.type == "proc")
    }
}

/// Runs `body` with the file permissions of a user without privileges.
func asUser(_ body: () -> Void) {
    if geteuid() != 0 { return body() }
    becomeUser(65534)
    defer { becomeUser(0) }
    body()
}

@Suite struct AUUIDOfALink {
    @Test("Long and short disk UUIDs are read, and malformed ones are refused")
    func isReadWhateverTheFilesystemsForm() {
        #expect(DiskLinks.bytes(uuid: "00112233-4455-6677-8899-aabbccddeeff")?.count == 16)
        #expect(DiskLinks.bytes(uuid: "1A2B-3c4d") == [0x1A, 0x2B, 0x3C, 0x4D])
        for text in ["", "-", "1", "zz", "+1", "1A2B-3C4D-1A2B-3C4D-1A2B-3C4D-1A2B-3C4D-FF", "é1"] {
            #expect(DiskLinks.bytes(uuid: text) == nil)
        }
    }
}

@Suite struct AFilesystemIsTheSame {
    let whole = FilesystemIdentity(uuid: [1], type: "ext4", fsid: 7)

    @Test("A filesystem is identified by its UUID or its fsid")
    func byItsUUIDOrElseByWhatComesFromIt() {
        #expect(whole.isSame(as: FilesystemIdentity(uuid: [1], type: "ext3", fsid: 7)))
        #expect(!whole.isSame(as: FilesystemIdentity(uuid: [2], type: "ext4", fsid: 7)))
        #expect(whole.isSame(as: FilesystemIdentity(uuid: [], type: "ext4", fsid: 7)))
        #expect(!whole.isSame(as: FilesystemIdentity(uuid: [], type: "ext4", fsid: 8)))
        #expect(!whole.isSame(as: FilesystemIdentity(uuid: [], type: "ext4")))
        #expect(!whole.isSame(as: FilesystemIdentity(uuid: [1], type: "ext4", bootID: "boot", fsid: 7)))
    }

    @Test("Another subvolume of the same volume is another filesystem")
    func butNotAnotherSubvolume() {
        let other = FilesystemIdentity(uuid: [1], type: "btrfs", fsid: 8)
        #expect(whole.isSameVolume(as: other))
        #expect(!whole.isSame(as: other))
    }

    @Test("A filesystem without UUID and fsid is identified by its source")
    func orByWhatIsMountedWhereNothingElseTells() {
        let host = FilesystemIdentity(uuid: [], type: "fuse.sshfs", source: [1])
        #expect(host.isSame(as: host))
        #expect(!host.isSame(as: FilesystemIdentity(uuid: [], type: "fuse.sshfs", source: [2])))
        #expect(!host.isSame(as: FilesystemIdentity(uuid: [], type: "nfs", source: [1])))
    }
}
