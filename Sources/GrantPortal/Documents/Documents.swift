import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import Synchronization

/// The documents: what the permission store says of them, and the grants that make it true.
///
/// A gift is granted first and then written into the permission store. A removal is withdrawn
/// first. A service that is killed in between leaves a grant without a permission or a permission
/// without a grant. `load` takes both away.
///
/// Locking: `turn` is held by one change at a time, for as long as the stores and the mounts take.
/// `state` is held for a look or a change.
final class Documents: Sendable {
    let administrator: GrantAdministrator
    let permissions: PermissionStore
    let own: OwnDocuments
    let state = Lock(DocumentState())
    let say: @Sendable (SystemLog.Level, String) -> Void
    /// How long a mount has to confirm a change, in seconds.
    let timeout = 5.0
    /// How many documents of one application there may be, of those made since this program began.
    static let mostOfAnApp = 1024
    /// How many applications may have a document, including those that have lost it, before no application can give it to one more.
    static let mostApps = 64
    /// The version of the store of grants that was read last.
    let version = Lock<Int64?>(nil)
    /// Whether the log has that the permission store does not answer.
    let isSilent = Atomic(false)
    private let turn = Semaphore()
    /// Set while the right to change is held.
    private let hasHandedOver = Atomic(false)

    init(_ administrator: GrantAdministrator, say: @escaping @Sendable (SystemLog.Level, String) -> Void) {
        (self.administrator, self.say) = (administrator, say)
        own = OwnDocuments(in: administrator.store.directory)
        permissions = PermissionStore(own: own)
        turn.post()
    }

    /// Carries out what a caller asks for, holding the right to change. `.failed` once this service has handed over.
    func changing<Result>(_ body: () throws(PortalError) -> Result) throws(PortalError) -> Result {
        guard let result = try changingUnlessHandedOver(body) else {
            throw PortalError(.failed, "another service has taken over the documents")
        }
        return result
    }

    /// Carries out what this service does by itself, holding the right to change. nil, without a change, once it has handed over.
    func changingUnlessHandedOver<Result, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result? {
        turn.wait()
        defer { turn.post() }
        guard !hasHandedOver.load(ordering: .relaxed) else { return nil }
        return try body()
    }

    /// Ends the session: withdraws the grants made for it alone, and leaves all changes to the next
    /// service from then on. A change under way is completed before that. `release` lets the next
    /// service begin. A second call does nothing.
    func handOver(_ release: () -> Void) {
        turn.wait()
        defer { turn.post() }
        guard !hasHandedOver.load(ordering: .relaxed) else { return }
        endSession()
        hasHandedOver.store(true, ordering: .relaxed)
        release()
    }

    /// The name of a document in its views.
    static func name(_ id: String) throws(PortalError) -> GrantName {
        guard DocumentNames.isStoredID(id), let name = try? GrantName(chosen: Array(id.utf8)) else { throw PortalError.noDocument(id) }
        return name
    }

    func isActive(_ grant: Grant?) -> Bool { grant?.state(at: Instant(nanoseconds: Clock.realtime)) == .active }

    /// Makes the application's grant of a document agree with its permissions (`wanted`). A missing grant is made. One that is to end is withdrawn and not forgotten, so that
    /// `list --all` shows it.
    /// The right to change is held.
    func adjust(_ id: String, _ app: String, to wanted: Access?) throws(PortalError) {
        guard let view = DocumentNames.view(of: app) else { throw PortalError(.invalidArgument, "'\(app)' is not a valid app name") }
        let key = DocumentState.Key(app: app, id: id)
        let (known, host) = state.withLock { ($0.grants[key], $0.host(id)) }
        do throws(GrantError) {
            let now: Access? = isActive(known) ? known?.access : nil
            guard now != wanted else { return }
            guard let wanted else {
                guard let known else { return }
                return try keep(administrator.revoke([known], timeout: timeout), key, withdraws: true)
            }
            guard let known else {
                // Without the host's grant the file is not known yet. `takeOver` finds it, and makes this grant as well.
                guard let host, let name = try? Self.name(id) else { return }
                return try keep([administrator.share(host, with: view, as: name, access: wanted, timeout: timeout)], key)
            }
            if known.access != wanted {
                let change = try administrator.set(known, access: wanted, name: nil, expires: nil, timeout: timeout)
                try keep([change], key, withdraws: wanted == .readOnly)
            }
            if now == nil { try keep(administrator.restore([known], timeout: timeout), key) }
        } catch {
            throw PortalError(error)
        }
    }

    /// Notes what became of a grant. A withdrawal that a mount has not confirmed is an error, because programs may go on with the document there.
    private func keep(_ changes: [GrantChange], _ key: DocumentState.Key, withdraws: Bool = false) throws(GrantError) {
        for change in changes { state.withLock { $0.set(change.grant, for: key) } }
        guard withdraws, let silent = changes.flatMap(\.mounts).first(where: { !$0.confirmed }) else { return }
        throw GrantError(
            .unconfirmed,
            "the withdrawal is recorded, but the mount at \(String(decoding: silent.mountpoint, as: UTF8.self)) has not confirmed it",
            cause: silent.reason)
    }

    /// Returns the access in a view that these permissions give, or nil if the application must not
    /// see the document.
    static func access(_ permissions: Permissions) -> Access? {
        guard permissions.contains(.read) else { return nil }
        return permissions.contains(.write) ? .readWrite : .readOnly
    }

    /// Gives the application these permissions and no others, in its view and in the permission store. The right to change is held.
    func set(_ new: Permissions, of app: String, for id: String) throws(PortalError) {
        guard let document = state.withLock({ $0.documents[id] }) else { throw PortalError.noDocument(id) }
        let old = document.permissions[app] ?? []
        guard old != new else { return }
        var failure: PortalError?
        do throws(PortalError) {
            try adjust(id, app, to: Self.access(new))
        } catch {
            // A removal is carried through in the permission store even if a mount fails.
            guard new.isStrictSubset(of: old) else { throw error }
            failure = error
        }
        state.withLock { $0.set(new, of: app, for: id) }
        try write(new, insteadOf: old, of: app, for: id)
        if let failure { throw failure }
    }

    /// How often permissions are written when others change them each time.
    private static let mostWrites = 8

    /// Writes a change of permissions into the permission store. What others have taken away or given there meanwhile stands, and the grants follow it. The right to change is
    /// held.
    ///
    /// Others may change the same permissions between the permission store's answer and this
    /// service's write, which overwrites that. The permission store announces both, so the
    /// overwritten change is known after the write. The change is then applied to it and written
    /// again.
    func write(_ new: Permissions, insteadOf old: Permissions, of app: String, for id: String) throws(PortalError) {
        guard state.withLock({ $0.isKept(id) }) else { return }
        let key = DocumentState.Key(app: app, id: id)
        let unwritten = state.withLock { $0.unwritten[key] }
        var change = PermissionChange(old: unwritten?.known ?? old, new: new)
        var history = try ask(key, change.old, unwritten?.attempt) { () throws(BusError) in try permissions.follow(key) }
        // A write that was not answered, and was carried out, has overwritten the permissions
        // before it.
        let isWritten = unwritten?.attempt == history.value
        var result = change.applied(to: isWritten ? history.before : history.value)
        if isWritten { change = PermissionChange(old: history.value, new: result) }
        var made = new
        var failure: PortalError?
        var writes = 0
        // Whether the next write restores a gift of another program that this service has
        // overwritten.
        var givesBack = isWritten
        while true {
            if result != made {
                do throws(PortalError) { try adjust(id, app, to: Self.access(result)) } catch { failure = error }
                state.withLock { $0.set(result, of: app, for: id) }
                made = result
            }
            guard result != history.value else {
                state.withLock { $0.unwritten[key] = nil }
                permissions.endFollowing(key)
                if let failure { throw failure }
                return
            }
            guard writes < Self.mostWrites else {
                state.withLock { $0.unwritten[key] = DocumentState.Unwritten(known: change.old) }
                throw PortalError(.failed, "another program changes the same permissions again and again")
            }
            writes += 1
            let decided = history.changes
            history = try ask(key, change.old, result) { () throws(BusError) in try permissions.set(result, of: key) }
            // The change applies to the permissions immediately before the write. A later write of
            // another program is kept.
            var wanted = history.value
            if history.value == result {
                // Since the gift was overwritten another program has written the same permissions,
                // which may have been the gift's removal.
                let isTakenBack = givesBack && history.repeatedBefore > decided
                wanted = isTakenBack ? change.takenAway(from: history.before) : change.applied(to: history.before)
            }
            change = PermissionChange(old: history.value, new: wanted)
            (result, givesBack) = (wanted, true)
        }
    }

    /// Reads or writes permissions in the permission store. When it does not answer or fails, that
    /// is noted, and tried again later. Throws `.notFound` when it has no such document, which is
    /// then withdrawn. `known`: what it had before. `attempt`: what it has if it carried out a
    /// write without answering.
    private func ask(
        _ key: DocumentState.Key, _ known: Permissions, _ attempt: Permissions?, _ body: () throws(BusError) -> PermissionHistory?
    ) throws(PortalError) -> PermissionHistory {
        let history: PermissionHistory?
        do throws(BusError) {
            history = try body()
        } catch {
            state.withLock { $0.unwritten[key] = DocumentState.Unwritten(known: known, attempt: attempt) }
            throw PortalError(.failed, "the permission store has not taken the permissions: \(error.text)")
        }
        guard let history else {
            try drop(key.id, inStore: false)
            throw PortalError.noDocument(key.id)
        }
        return history
    }

    /// The name by which the document's file is in its directory.
    func fileName(of id: String) -> [UInt8]? {
        state.withLock { state in
            state.host(id)?.bookmark.document?.name.bytes ?? state.path(of: id).map { CanonicalPath.lastName(of: $0) }
        }
    }

    /// Withdraws and forgets the document's grants, and the document. The right to change is held.
    func drop(_ id: String, inStore: Bool) throws(PortalError) {
        let (grants, isKept) = state.withLock { state in
            (state.keys(of: id).compactMap { state.grants[$0] }, state.isKept(id))
        }
        permissions.endFollowing(id)
        // First: if this service ends now, the next one must not take the document over by the entry that is still there.
        if isKept { note([id]) }
        do throws(GrantError) {
            let changes = grants.isEmpty ? [] : try administrator.remove(grants, timeout: timeout)
            state.withLock { $0.forget(id) }
            if !inStore { own.forget(id) }
            if inStore, isKept {
                do throws(BusError) {
                    try erase(id)
                } catch {
                    throw GrantError(.system, "the permission store has not forgotten the document", cause: error.text)
                }
            }
            if !changes.areConfirmed {
                throw GrantError(.unconfirmed, "the document is withdrawn, but some mount has not confirmed it")
            }
        } catch {
            throw PortalError(error)
        }
    }

    /// Has the permission store delete a document that was removed. If it fails, it is asked again later, and until then the entry is not taken over.
    func erase(_ id: String) throws(BusError) {
        state.withLock { _ = $0.undeleted.insert(id) }
        try permissions.delete(id)
        state.withLock { _ = $0.undeleted.remove(id) }
        own.forget(id)
    }

    /// Notes that these documents are this program's own.
    func note(_ ids: Set<String>) {
        do throws(Errno) {
            try own.add(ids)
        } catch {
            say(.error, "which documents there are cannot be noted in the store: \(error)")
        }
    }
}
