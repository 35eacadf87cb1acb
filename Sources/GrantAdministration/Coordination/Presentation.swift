import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A presenter registered with the daemon of every mount that leads to its item. It is asked before others may claim the item, and told
/// what happened to it. It ends with `end`, its last reference, or the process.
///
/// One thread of the process calls the handlers of all presentations in a store, one after the
/// other. A handler must not take long, and must not register a presenter: the work belongs
/// elsewhere, and the answer follows when it is done.
///
/// Locking: its own, for a moment.
public final class Presentation: Sendable {
    private let shared: Shared
    private let item: PresentedItem
    private let hub: PresenterHub

    /// The state shared with the hub's thread.
    final class Shared: Sendable {
        let state: Lock<(path: [UInt8], isPresenting: Bool, isEnded: Bool)>

        init(_ path: [UInt8]) { state = Lock((path, false, false)) }

        var isEnded: Bool { state.withLock { $0.isEnded } }
    }

    /// Registers the presenter, and returns when every mount has answered.
    ///
    /// - Parameters:
    ///   - path: A path on the host or in a mount, at or below a granted directory. The last name
    ///     need not exist.
    ///   - purpose: Claims of the same purpose do not ask this presenter.
    ///   - timeout: How long an answer may take, in seconds. The limit is 60 seconds.
    ///   - onRequest: Gets each question, and must answer it.
    ///   - onNotice: Gets each notice.
    ///   - onStoreChange: Called on the same thread, within a second after another process has
    ///     changed the store, because a grant may have another name.
    ///
    /// - Throws: `.noMount`, `.outside`, `.revoked` or `.failed`.
    public init(
        _ path: [UInt8], in coordination: FileCoordination, purpose: String? = nil, timeout: Double? = nil,
        onRequest: @escaping @Sendable (PresenterRequest) -> Void, onNotice: @escaping @Sendable (PresenterNotice) -> Void,
        onStoreChange: @escaping @Sendable () -> Void = {}
    ) throws(CoordinationError) {
        let store = coordination.administrator.store
        // Read first, so that a mount which is made meanwhile is noticed as a change.
        let version = try? store.dataVersion()
        let records = try coordination.mounts()
        shared = Shared(try coordination.place(of: path, follows: false, records))
        item = PresentedItem(
            records, version, shared: shared, purpose: purpose.map { Array($0.utf8) },
            timeout: timeout.map { UInt32(min(max($0 * 1000, 1), 60_000)) } ?? 0, onRequest: onRequest, onNotice: onNotice,
            onStoreChange: onStoreChange)
        do throws(Errno) {
            hub = try PresenterHub.begin(item, in: store)
        } catch {
            throw .failed(error.description)
        }
        do throws(CoordinationError) {
            try item.waitForOutcome()
        } catch {
            end()
            throw error
        }
    }

    deinit { end() }

    /// The item's present path on the host, as far as known.
    public var path: [UInt8] { shared.state.withLock { $0.path } }

    /// Whether the presenter is registered with a daemon now.
    public var isPresenting: Bool { shared.state.withLock { $0.isPresenting } }

    /// Ends the presentation. Only calls already under way finish.
    public func end() {
        let isFirst = shared.state.withLock { state in
            defer { (state.isEnded, state.isPresenting) = (true, false) }
            return !state.isEnded
        }
        if isFirst { hub.end(item) }
    }
}
