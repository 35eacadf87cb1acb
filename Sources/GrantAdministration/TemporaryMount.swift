import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A mount, and perhaps a view, that are there for one command and are gone with it, however it ends.
///
/// Beside the sockets in the store's `run` directory it has a directory to be mounted on and a file that the command keeps locked. The
/// kernel drops the lock when the command ends. Whoever can take it then cleans up: the mount's daemon, which waits for it, or,
/// when that has ended as well, the next command that opens the store.
public final class TemporaryMount: Sendable {
    /// `run-` and 16 hexadecimal digits: the names of the file and of the directory, and of the view when it has its own.
    public let label: String
    /// Whether the view goes as well, with its grants.
    public let hasOwnView: Bool
    private let store: GrantStore
    private let lock: FileLock

    private init(label: String, hasOwnView: Bool, store: GrantStore, lock: consuming FileLock) {
        self.label = label
        self.hasOwnView = hasOwnView
        self.store = store
        self.lock = lock
    }

    /// One that nothing has yet.
    public static func newLabel() -> String { "run-" + Hexadecimal.text(GrantID.random().high) }

    /// The name of the file of the mount with this label.
    public static func file(label: String, hasOwnView: Bool) -> String { label + (hasOwnView ? ".view" : ".mount") }

    /// The directory to be mounted on, which is there. Absolute and canonical.
    public var mountpoint: String { store.runDirectory + "/" + label }
    /// The name of its file.
    public var file: String { TemporaryMount.file(label: label, hasOwnView: hasOwnView) }

    /// `.storeUnavailable` when its file or its directory cannot be made; nothing is left then.
    ///
    /// `label`: of `newLabel`, where it was needed before.
    public static func create(in store: GrantStore, hasOwnView: Bool, label: String = newLabel()) throws(GrantError) -> TemporaryMount {
        let path = store.runDirectory + "/" + label
        do throws(Errno) {
            // Locked from the first: another command's sweep takes what it finds unlocked for something that was left behind.
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

    /// Waits until the command that made it has ended. nil when somebody has cleaned up already; else the caller is to call `clean`.
    public static func awaitEnd(of file: String, in store: GrantStore) -> TemporaryMount? {
        take(file, in: store, waits: true)
    }

    /// The views that are there for one command each, and are gone with it.
    public static func views(of store: GrantStore) -> Set<ViewName> {
        let names = ((try? DirectoryNames.of(store.runDirectory.utf8)) ?? []).map { String(decoding: $0, as: UTF8.self) }
        return Set(names.filter { $0.hasPrefix("run-") && $0.hasSuffix(".view") }.compactMap { try? ViewName(String($0.dropLast(5))) })
    }

    /// Cleans up after commands that have ended without doing so. Best effort: what cannot be done now is left for the next one.
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
        return TemporaryMount(label: String(parts[0]), hasOwnView: parts[1] == "view", store: store, lock: lock)
    }

    /// Takes the mount, the grants and the files away; nothing happens when they are gone. When the grants cannot be taken away, the
    /// rest is all the same, and the file stays for somebody to try again.
    public func clean() throws(GrantError) {
        var failure: GrantError?
        do throws(GrantError) {
            if hasOwnView { try removeGrants() }
        } catch {
            failure = error
        }
        let place = try Mountpoint(Array(mountpoint.utf8))
        while try place.mounted()?.type == GrantAdministrator.filesystemType { try place.unmount(lazy: true) }
        // What is held of it stays on record.
        _ = try store.remains(of: try store.mounts().filter { $0.mountpoint == place.path && !$0.process.mayRun })
        if let failure { throw failure }
        rmdir(mountpoint)
        // Last: as long as it is there, somebody cleans up.
        unlink(store.runDirectory + "/" + file)
    }

    private func removeGrants() throws(GrantError) {
        guard let view = try? ViewName(label) else { return }
        let grants = try store.grants(view: view)
        if grants.isEmpty { return }
        let administrator = GrantAdministrator(store: store)
        _ = try administrator.revoke(grants, timeout: 2)
        // That their names are unknown now, and not refused, nobody is told who is about to be unmounted.
        try store.remove(grants.map(\.id), by: administrator.actor)
    }
}

extension GrantAdministrator {
    /// Where the view is mounted and answers, for more than one command; nil when it is nowhere. Of several, the one that is mounted
    /// for the longest time.
    public func liveMount(of view: ViewName) throws(GrantError) -> MountRecord? {
        let table = try Placement.currentTable()
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
}
