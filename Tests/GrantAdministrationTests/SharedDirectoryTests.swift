import GrantModel
import GrantSystem
import Testing

@testable import GrantAdministration
@testable import GrantMounts

/// Places in which the search looks for a directory of a filesystem. It sends no request to mounts.
@Suite struct ASharedDirectory {
    private func places(_ filesystem: String, _ path: String, _ lines: String) throws -> [String] {
        let place = SharedDirectory(filesystem: try #require(FilesystemName(filesystem)), path: path)
        return place.candidates(in: MountTable(parsing: Array(lines.utf8))).map { String(decoding: $0.path, as: UTF8.self) }
    }

    @Test("A shared directory is found in each mount that shows it uncovered")
    func mounts() throws {
        let lines = """
            20 1 8:1 / / rw - ext4 /dev/sda1 rw
            21 20 0:50 / /mnt/nas rw - nfs4 nas:/export rw
            22 20 0:50 /projects /srv/projects rw - nfs4 nas:/export rw
            23 20 0:50 /projects/y /srv/y rw - nfs4 nas:/export rw
            24 20 0:50 / /covered rw - nfs4 nas:/export rw
            25 24 0:51 / /covered/projects rw - tmpfs none rw
            26 20 0:52 / /other rw - nfs4 nas:/other rw
            27 20 0:53 / /mnt/nas2 rw - nfs4 nas:/export/ rw
            """
        #expect(try places("nas:/export", "/projects/x", lines) == ["/srv/projects/x", "/mnt/nas/projects/x"])
        #expect(try places("nas:/export", "/", lines) == ["/covered", "/mnt/nas"])
        #expect(try places("nas:/export", "/projects/yy", lines) == ["/srv/projects/yy", "/mnt/nas/projects/yy"])
        #expect(try places("nas:/none", "/projects/x", lines).isEmpty)
    }

    @Test("A shared directory is not found in a filesystem that a user has mounted")
    func usersMounts() throws {
        let lines = """
            20 1 8:1 / / rw - ext4 /dev/sda1 rw
            21 20 0:50 / /home/u/nas rw - fuse.sshfs nas:/export rw,user_id=1000,group_id=1000
            22 20 0:51 / /mnt/nas rw - fuse.sshfs nas:/export rw,user_id=0,group_id=0,allow_other
            23 20 0:52 / /home/u/raw rw - fuse nas:/export rw,user_id=10,group_id=0
            """
        #expect(try places("nas:/export", "/x", lines) == ["/mnt/nas/x"])
    }

    @Test("A filesystem name is a UUID in either case or a source that is not a device")
    func names() throws {
        #expect(FilesystemName("UUID=0D3B2F4C-1111-2222-3333-444455556666")?.description == "UUID=0d3b2f4c-1111-2222-3333-444455556666")
        #expect(FilesystemName("UUID=ABCD-1234")?.description == "UUID=abcd-1234")
        for none in ["", "/dev/sda1", "UUID=", "UUID=xyz", "UUID=+1+1", "UUID=00000000-0000-0000-0000-000000000000", "a\0b"] {
            #expect(FilesystemName(none) == nil, "\(none)")
        }
        #expect(FilesystemName(try #require(FilesystemName("nas:/export")).description) == FilesystemName("nas:/export"))
    }

    @Test("Two file identities agree if their common fields are equal")
    func identity() {
        let (one, born) = (FileIdentity(inode: 7), Instant(nanoseconds: 5))
        #expect(one.agrees(with: FileIdentity(inode: 7, generation: 3, birthTime: born)))
        #expect(!one.agrees(with: FileIdentity(inode: 8)))
        #expect(!FileIdentity(inode: 7, birthTime: born).agrees(with: FileIdentity(inode: 7, birthTime: Instant(nanoseconds: 6))))
        #expect(!FileIdentity(inode: 7, generation: 3).agrees(with: FileIdentity(inode: 7, generation: 4, birthTime: born)))
    }
}
