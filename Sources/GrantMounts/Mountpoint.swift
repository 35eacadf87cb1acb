import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A path where a view is or can be mounted.
public struct Mountpoint: Sendable {
    /// Absolute, canonical.
    public let path: [UInt8]

    /// Resolves links. It inspects only the directories above the mountpoint: the mounted
    /// filesystem may hang.
    public init(_ given: [UInt8]) throws(GrantError) {
        do {
            path = try Mountpoint.resolve(given, links: 40)
        } catch {
            throw Mountpoint.refusal(given, error)
        }
    }

    /// Takes a path that was resolved before.
    public init(canonical path: [UInt8]) { self.path = path }

    private static func resolve(_ given: [UInt8], links: Int) throws(Errno) -> [UInt8] {
        let path = try CanonicalPath.resolveAbove(given)
        // A mountpoint is a directory. The kernel knows that without asking the daemon.
        guard let target = try? CanonicalPath.target(of: path) else { return path }
        if links == 0 { throw Errno(ELOOP) }
        let directory = path.lastIndex(of: 0x2F).map { Array(path[..<$0]) } ?? []
        return try resolve(target.first == 0x2F ? target : directory + [0x2F] + target, links: links - 1)
    }

    /// Changes the flags of the topmost view here.
    public func remount(_ options: MountOptions) throws(Errno) {
        let root = try FileDescriptor.openWithoutLinks(path)
        guard try MountIdentity(of: root).isSame(as: try identity()) else { throw Errno(EINVAL) }
        try MountIdentity.remount(
            root, readOnly: options.readOnly, setID: options.allowSetID, devices: options.allowDevices, noExecute: options.noExecute,
            noAccessTime: options.noAccessTime, noDirectoryAccessTime: options.noDirectoryAccessTime)
    }

    public var shown: String { String(decoding: path, as: UTF8.self) }

    /// Returns the topmost mount exactly here.
    public func mounted() throws(GrantError) -> MountEntry? {
        try LoopCheck.currentTable().entry(mountpoint: path)
    }

    /// Unmounts the topmost view here, as `fusermount3 -u` and `umount` do. Throws `.mountFailed`
    /// if it is busy or not a view.
    public func unmount(lazy: Bool = false) throws(GrantError) {
        do throws(Errno) {
            try unmount(try identity(), lazy: lazy)
        } catch {
            let isBusy = error == Errno(EBUSY)
            throw GrantError(
                .mountFailed, "\(shown) cannot be unmounted", cause: isBusy ? "it is in use" : error.description,
                advice: isBusy
                    ? "grantfs status names who uses it"
                    : error == Errno(ENOENT) && geteuid() != 0 ? "users need fusermount3, of the package fuse3" : nil)
        }
    }

    /// Returns the identity of the topmost view here. EINVAL if there is none, ELOOP if a link has come into the path.
    package func identity() throws(Errno) -> MountIdentity {
        let identity = try MountIdentity(of: try FileDescriptor.openWithoutLinks(path))
        guard let entry = identity.entry(in: try MountTable.current()), entry.mountpoint == path,
            entry.type == GrantAdministrator.filesystemType
        else { throw Errno(EINVAL) }
        return identity
    }

    /// Unmounts that mount and no other. For unprivileged users it uses the path, which it compares
    /// right before. fusermount3 unmounts only FUSE mounts of the same user.
    public func unmount(_ mount: MountIdentity, lazy: Bool) throws(Errno) {
        if geteuid() == 0 {
            if lazy { return try mount.detach() }
            let parent = try FileDescriptor.openWithoutLinks(CanonicalPath.parent(of: path))
            return try mount.unmount(in: parent, name: CanonicalPath.lastName(of: path))
        }
        guard let entry = mount.entry(in: try MountTable.current()) else {
            if lazy { return }
            throw Errno(EINVAL)
        }
        guard try MountIdentity(of: try FileDescriptor.openWithoutLinks(entry.mountpoint)).isSame(as: mount) else { throw Errno(EBUSY) }
        let arguments = ["fusermount3", "-u"] + (lazy ? ["-z"] : []) + ["--"]
        let child = try ChildProcess.spawn(
            .path(ProgramSearch.mountHelper ?? "fusermount3"), arguments: arguments.map { Array($0.utf8) } + [entry.mountpoint])
        // It has printed why.
        if try ChildProcess.wait(child) != 0 { throw Errno(EBUSY) }
    }

    /// Whether the kernel answers ENOTCONN, or `ifSilent` if there is no answer within two seconds.
    /// It opens the directory, because attributes may be cached, and does so on a thread of its
    /// own, because a daemon that hangs never answers.
    package func isDead(ifSilent: Bool = false) -> Bool {
        let path = path
        let answer = Lock<Int32?>(nil)
        let work: @Sendable () -> Void = {
            let opened = withCString(path) { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) }
            var result = opened < 0 ? errno : 0
            // The open may succeed without asking the daemon.
            if opened >= 0 { result = FileDescriptor(owning: opened).freshStatusError }
            answer.withLock { $0 = result }
        }
        guard let thread = try? WorkerThread.start("probe", work) else { return false }
        thread.detach()
        for _ in 0..<200 {
            if let result = answer.withLock({ $0 }) { return result == ENOTCONN || result == ECONNABORTED }
            usleep(10_000)
        }
        return ifSilent
    }

    /// Whether fusermount3 lets users mount with allow_other.
    package static var usersMayAllowOther: Bool {
        let text = (try? File.contents(of: "/etc/fuse.conf".utf8)) ?? []
        return text.split(separator: 0x0A).contains { line in
            line.drop { $0 == 0x20 || $0 == 0x09 }.prefix { $0 != 0x20 && $0 != 0x09 && $0 != 0x0D }.elementsEqual("user_allow_other".utf8)
        }
    }

    package static func refusal(_ path: [UInt8], _ error: Errno) -> GrantError {
        let cause =
            switch error.rawValue {
            case ENOENT: "there is no such directory"
            case ENOTDIR: "it is not a directory"
            default: error.description
            }
        let advice = error == Errno(ENOENT) ? UnexpandedHome.advice(for: path) ?? "make it with mkdir" : nil
        return GrantError(
            .mountFailed, "\(String(decoding: path, as: UTF8.self)) cannot be a mountpoint", cause: cause, advice: advice)
    }
}
