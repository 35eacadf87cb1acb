/// What identifies a filesystem across reboots. Never a device number or a mount id: both change.
public struct FilesystemIdentity: Hashable, Sendable {
    /// 16 bytes at most, or empty where the filesystem has none (a UUID of zeros is unknown).
    public var uuid: [UInt8]
    /// The type as /proc/self/mountinfo names it (`ext4`, `tmpfs`, `fuse.sshfs`).
    public var type: String
    /// Set for filesystems that do not outlive a boot (tmpfs, ramfs): the boot id they lived in.
    public var bootID: String?
    /// statfs(2) f_fsid, for the types that derive it from the UUID and not from a device number (btrfs mixes the
    /// subvolume into it).
    public var fsid: UInt64?
    /// What is mounted, for filesystems that nothing else identifies (`host:/path` of nfs or sshfs).
    public var source: [UInt8]?

    public init(uuid: [UInt8], type: String, bootID: String? = nil, fsid: UInt64? = nil, source: [UInt8]? = nil) {
        self.uuid = uuid
        self.type = type
        self.bootID = bootID
        self.fsid = fsid
        self.source = source
    }
}

/// A file handle as name_to_handle_at(2) gives it.
public struct FileHandle: Hashable, Sendable {
    public var type: Int32
    public var bytes: [UInt8]

    public init(type: Int32, bytes: [UInt8]) {
        self.type = type
        self.bytes = bytes
    }
}

/// What tells a directory from every other one on its filesystem.
public struct FileIdentity: Hashable, Sendable {
    public var inode: UInt64
    /// FS_IOC_GETVERSION, where it answers.
    public var generation: UInt32?
    /// statx(2) stx_btime, where the filesystem keeps it.
    public var birthTime: Instant?

    public init(inode: UInt64, generation: UInt32? = nil, birthTime: Instant? = nil) {
        self.inode = inode
        self.generation = generation
        self.birthTime = birthTime
    }
}

/// What was around a directory when its bookmark was made, and who made it: where to search for it, and for people who have to
/// find it again.
public struct BookmarkOrigin: Hashable, Sendable {
    /// The directories above, the nearest first, the root last. Renewed together with the path.
    public var ancestors: [FileIdentity]
    /// The boot it was made in.
    public var bootID: String
    /// The uid that made it.
    public var madeBy: UInt32

    public init(ancestors: [FileIdentity], bootID: String, madeBy: UInt32) {
        self.ancestors = ancestors
        self.bootID = bootID
        self.madeBy = madeBy
    }
}

/// The persisted identity of one directory, or of one file: it finds it again after a rename, a move, a reboot.
public struct Bookmark: Hashable, Sendable {
    public var filesystem: FilesystemIdentity
    /// nil on filesystems without lasting handles: such a bookmark is weak.
    public var handle: FileHandle?
    public var identity: FileIdentity
    /// Absolute, canonical, in bytes; where the directory was when last seen.
    public var path: [UInt8]
    public var owner: UInt32
    public var created: Instant
    /// nil in bookmarks that were made before it was kept.
    public var origin: BookmarkOrigin?
    /// What the directory was tagged with (`--tag`), so that a restored copy can be recognised.
    public var tag: DirectoryTag?
    /// Set when it is of a file.
    public var document: DocumentBookmark?

    public init(
        filesystem: FilesystemIdentity, handle: FileHandle?, identity: FileIdentity, path: [UInt8], owner: UInt32, created: Instant,
        origin: BookmarkOrigin? = nil, tag: DirectoryTag? = nil, document: DocumentBookmark? = nil
    ) {
        self.filesystem = filesystem
        self.handle = handle
        self.identity = identity
        self.path = path
        self.owner = owner
        self.created = created
        self.origin = origin
        self.tag = tag
        self.document = document
    }
}
