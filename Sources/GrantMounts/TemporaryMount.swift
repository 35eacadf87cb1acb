import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A mount, and perhaps a view, for one command. Both end with the command, however it ends.
///
/// It has a directory to mount on and a lock file in the store's `run` directory, beside the
/// sockets. The command holds the lock. The kernel releases it when the command ends. The next
/// process that gets the lock cleans up: the mount's daemon, which waits for it, or, if that has
/// ended as well, the next command that opens the store. If the command becomes another program,
/// which has no lock, the file names its process (`keepThroughExec`).
public final class TemporaryMount: Sendable {
    /// `run-` and 16 hexadecimal digits: the name of the file, of the directory, and of the view if it has its own.
    public let label: String
    /// Whether the view is removed as well, with its grants.
    public let hasOwnView: Bool
    private let store: GrantStore
    private let lock: FileLock

    private init(label: String, hasOwnView: Bool, store: GrantStore, lock: consuming FileLock) {
        self.label = label
        self.hasOwnView = hasOwnView
        self.store = store
        self.lock = lock
    }

    /// Makes a label that is not in use.
    public static func newLabel() -> String { prefix + Hexadecimal.text(GrantID.random().high) }
    /// Whether it may be the label of such a mount.
    package static func isLabel(_ name: String) -> Bool { name.hasPrefix(prefix) }
    private static let prefix = "run-"

    /// Returns the name of the lock file of the mount with this label.
    public static func file(label: String, hasOwnView: Bool) -> String { label + (hasOwnView ? ".view" : ".mount") }

    /// The directory to mount on, which exists. Absolute and canonical.
    public var mountpoint: String { store.runDirectory + "/" + label }
    /// The name of its lock file.
    public var file: String { TemporaryMount.file(label: label, hasOwnView: hasOwnView) }

    /// Makes the lock file and the directory. It throws `.storeUnavailable` if one of them cannot
    /// be made, and then leaves nothing.
    ///
    /// `label`: from `newLabel`, if it was needed before.
    public static func create(in store: GrantStore, hasOwnView: Bool, label: String = newLabel()) throws(GrantError) -> TemporaryMount {
        let path = store.runDirectory + "/" + label
        do throws(Errno) {
            // Locked from its creation: another command's sweep takes unlocked ones for abandoned.
            let lock = try FileLock.make(path + (hasOwnView ? ".view" : ".mount"))
            let made = TemporaryMount(label: label, hasOwnView: hasOwnView, store: store, lock: lock)
            if mkdir(path, 0o700) != 0 {
                let error = Errno(errno)
                unlink(path + (hasOwnView ? ".view" : ".mount"))
                throw error
            }
            return made
        } catch {
            throw GrantError(
                .storeUnavailable, "nothing can be mounted in the store's directory \(store.runDirectory)", cause: error.description)
        }
    }

    /// Waits until the command that made it has ended. Returns nil if it is cleaned up already.
    /// Otherwise the caller must call `clean`.
    public static func awaitEnd(of file: String, in store: GrantStore) -> TemporaryMount? {
        take(file, in: store, waits: true)
    }

    /// Returns the views that belong to one command each.
    public static func views(of store: GrantStore) -> Set<ViewName> {
        let names = ((try? DirectoryNames.of(store.runDirectory.utf8)) ?? []).map { String(decoding: $0, as: UTF8.self) }
        return Set(names.filter { $0.hasPrefix("run-") && $0.hasSuffix(".view") }.compactMap { try? ViewName(String($0.dropLast(5))) })
    }

    /// Cleans up after commands that ended without doing so, best effort. The rest is left for the
    /// next command.
    public static func sweep(_ store: GrantStore) {
        for name in (try? DirectoryNames.of(store.runDirectory.utf8)) ?? [] {
            guard let left = take(String(decoding: name, as: UTF8.self), in: store, waits: false) else { continue }
            try? left.clean()
        }
    }

    private static func take(_ file: String, in store: GrantStore, waits: Bool) -> TemporaryMount? {
        let parts = file.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[1] == "view" || parts[1] == "mount", parts[0].hasPrefix("run-"),
            parts[0].dropFirst(4).utf8.count == 16, parts[0].dropFirst(4).utf8.allSatisfy({ Hexadecimal.value(of: $0) != nil }),
            let lock = try? FileLock.take(store.runDirectory + "/" + file, waits: waits)
        else { return nil }
        if let process = process(named: store.runDirectory + "/" + file), process.mayRun {
            if !waits { return nil }
            process.awaitEnd()
        }
        return TemporaryMount(label: String(parts[0]), hasOwnView: parts[1] == "view", store: store, lock: lock)
    }

    /// Makes the mount last as long as this process, whatever program that becomes.
    public func keepThroughExec() throws(GrantError) {
        do throws(Errno) {
            guard let own = ProcessIdentity.own else { throw Errno(ESRCH) }
            let line = Array("\(own.pid) \(own.start) \(own.bootID)\n".utf8)
            let written = try FileDescriptor.open((store.runDirectory + "/" + file).utf8, O_WRONLY | O_NOFOLLOW)
            guard try Errno.check(write(written.number, line, line.count)) == line.count else { throw Errno(ENOSPC) }
        } catch {
            throw GrantError(.storeUnavailable, "nothing can be mounted in the store's directory", cause: error.description)
        }
    }

    /// Returns the process that the file names, or nil if it names none.
    private static func process(named file: String) -> ProcessIdentity? {
        guard let text = try? File.contents(of: file.utf8), text.last == UInt8(ascii: "\n") else { return nil }
        let words = String(decoding: text.dropLast(), as: UTF8.self).split(separator: " ")
        guard words.count == 3, let pid = Int32(words[0]), let start = UInt64(words[1]) else { return nil }
        return ProcessIdentity(pid: pid, start: start, bootID: String(words[2]))
    }

    /// Removes the mount, the grants and the files. It does nothing if they are gone. If the grants
    /// cannot be removed, the rest is, and the lock file is kept for another try.
    public func clean() throws(GrantError) {
        var failure: GrantError?
        do throws(GrantError) {
            if hasOwnView { try removeGrants() }
        } catch {
            failure = error
        }
        let place = try Mountpoint(Array(mountpoint.utf8))
        while try place.mounted()?.type == GrantAdministrator.filesystemType { try place.unmount(lazy: true) }
        // If something of the mount is held, it stays on record.
        let dead = try store.mounts().filter { $0.mountpoint == place.path && !$0.process.mayRun }
        _ = try store.deadMounts(of: dead, until: Clock.deadline(seconds: 5))
        if let failure { throw failure }
        rmdir(mountpoint)
        // Last: as long as the file exists, others try to clean up.
        unlink(store.runDirectory + "/" + file)
    }

    private func removeGrants() throws(GrantError) {
        guard let view = try? ViewName(label) else { return }
        let grants = try store.grants(view: view)
        if grants.isEmpty { return }
        let administrator = GrantAdministrator(store: store)
        // On disk they are when they are removed. Should the machine stop before, the lock file is left, and the next command cleans up.
        _ = try administrator.revoke(grants, timeout: 2, waitsForDisk: false)
        // No process has to be told that the names are unknown now instead of refused: the mount is
        // about to go.
        try store.remove(grants.map(\.id), by: administrator.actor)
    }
}

extension GrantAdministrator {
    /// Returns the oldest mount of the view that answers and is not made for one command only, or
    /// nil if there is none.
    public func liveMount(of view: ViewName) throws(GrantError) -> MountRecord? {
        let table = try LoopCheck.currentTable()
        let temporary = Array((store.runDirectory + "/").utf8)
        return try store.mounts(view: view).first { record in
            guard !record.mountpoint.starts(with: temporary),
                record.entry(in: table) != nil
            else { return false }
            if case .success(.done) = Daemons.ask(record, .ping, in: store.runDirectory, deadline: Clock.deadline(seconds: 2)) {
                return true
            }
            return false
        }
    }
    /// Where a view is mounted now by another command, for as long as that runs: a session of `grantfs mcp`, say.
    public func temporaryMountpoint(of view: ViewName) throws(GrantError) -> [UInt8]? {
        let table = try LoopCheck.currentTable()
        return try store.mounts(view: view).first { $0.entry(in: table) != nil }?.mountpoint
    }
}
