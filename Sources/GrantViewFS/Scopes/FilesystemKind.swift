import CGrantSystem
import GrantSystem

/// The properties of a granted filesystem that follow from its type.
///
/// Determined by f_type of statfs(2), with the numbers of linux/magic.h.
struct FilesystemKind {
    /// Whether a server or another daemon checks the permissions of each user.
    ///
    /// It may allow less than the local kernel assumes, as NFS with root squashing and sshfs do.
    let hasServer: Bool
    /// Whether every rename and removal passes through this kernel.
    let isLocal: Bool

    let folding: NameFolding

    /// NFS, FUSE, CIFS, SMB 2, Ceph, AFS, 9P.
    private static let served: Set<Int64> = [0x6969, 0x6573_5546, 0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x5346_414F, 0x0102_1997]
    /// GFS2, OCFS2, Lustre, vboxsf, OrangeFS, Coda, kAFS, autofs.
    private static let shared: Set<Int64> = [
        0x0116_1970, 0x7461_636F, 0x0BD0_0BD0, 0x786F_4256, 0x2003_0528, 0x7375_7245, 0x6B41_4653, 0x0187,
    ]

    /// Determines the kind of an open directory's filesystem.
    ///
    /// An unknown filesystem counts as having no server and as not local.
    init(of directory: borrowing FileDescriptor) {
        var (type, number): (Int64, UInt64) = (0, 0)
        let isKnown = clinux_fstatfs_type(directory.number, &type, &number) == 0
        hasServer = isKnown && Self.served.contains(type)
        isLocal = isKnown && !hasServer && !Self.shared.contains(type)
        folding = NameFolding(filesystem: isKnown ? type : nil)
    }
}
