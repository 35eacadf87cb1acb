/// A filesystem's identity across reboots. It has no device number and no mount id: both change.
public struct FilesystemIdentity: Hashable, Sendable {
    /// The UUID of at most 16 bytes, or empty if the filesystem has none. A UUID of zeros counts as
    /// none.
    public var uuid: [UInt8]
    /// The type as /proc/self/mountinfo names it (`ext4`, `tmpfs`, `fuse.sshfs`).
    public var type: String
    /// The boot id, for filesystems that do not outlive a boot (tmpfs, ramfs).
    public var bootID: String?
    /// f_fsid of statfs(2), for the types that derive it from the UUID and not from a device number. btrfs mixes the subvolume into it.
    public var fsid: UInt64?
    /// The mount source, for filesystems that nothing else identifies (`host:/path` of nfs or sshfs).
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

/// The identity of a file or directory within its filesystem.
public struct FileIdentity: Hashable, Sendable {
    public var inode: UInt64
    /// What FS_IOC_GETVERSION returns, where it is supported.
    public var generation: UInt32?
    /// statx(2) stx_btime, where the filesystem keeps it.
    public var birthTime: Instant?

    public init(inode: UInt64, generation: UInt32? = nil, birthTime: Instant? = nil) {
        self.inode = inode
        self.generation = generation
        self.birthTime = birthTime
    }
}

/// The surroundings of a directory when its bookmark was made, and the user who made it. They say
/// where to search for it, and help people find it again.
public struct BookmarkOrigin: Hashable, Sendable {
    /// The parent directories, the nearest first, the root last. Renewed together with the path.
    public var ancestors: [FileIdentity]
    /// The boot in which the bookmark was made.
    public var bootID: String
    /// The uid of the process that made it.
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
    /// The path where the directory was last seen: absolute, canonical, in bytes.
    public var path: [UInt8]
    public var owner: UInt32
    public var created: Instant
    /// nil in bookmarks that were made before origins were recorded.
    public var origin: BookmarkOrigin?
    /// The tag that the directory was given (`--tag`), by which a restored copy can be recognised.
    public var tag: DirectoryTag?
    /// Set for bookmarks of files.
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
