import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A presenter that is registered with the daemon of every mount that leads to its item. It is asked before others may claim the item, and told
/// what became of it. It ends with `end`, with the last reference to it, or with the process.
///
/// It has a connection for each mount and one thread, on which both handlers are called, one after the other: what takes long is to be done
/// elsewhere, and answered when it is done.
///
/// Locking: its own, for a moment.
public final class Presentation: Sendable {
    private let shared: Shared

    /// What its thread and others have in common.
    final class Shared: Sendable {
        let wakeUp: PipePair
        let state: Lock<(path: [UInt8], isPresenting: Bool, isEnded: Bool)>

        init(_ path: [UInt8]) throws(Errno) {
            wakeUp = try PipePair()
            state = Lock((path, false, false))
        }

        var isEnded: Bool { state.withLock { $0.isEnded } }
    }

    /// Registers, and returns when every mount has answered.
    ///
    /// - Parameters:
    ///   - path: on the host or below a mount; the last name need not exist. At or below a granted directory.
    ///   - purpose: claims of the same purpose do not ask it.
    ///   - patience: how long an answer may take, in seconds; 5 when left out, 60 at the most.
    ///   - asked: every question is to be answered.
    ///   - storeChanged: called on the same thread, within a second after somebody else has changed the store: a grant may have another name.
    ///
    /// Errors: `.noMount`, `.outside`, `.revoked`, `.failed`.
    public init(
        _ path: [UInt8], in coordination: FileCoordination, purpose: String? = nil, patience: Double? = nil,
        asked: @escaping @Sendable (PresenterRequest) -> Void, told: @escaping @Sendable (PresenterNotice) -> Void,
        storeChanged: @escaping @Sendable () -> Void = {}
    ) throws(CoordinationError) {
        let records = try coordination.mounts()
        let place = try coordination.place(of: path, follows: false, records)
        let connections: PresenterConnections
        do throws(Errno) {
            shared = try Shared(place)
            connections = PresenterConnections(
                shared: shared, store: coordination.administrator.store, purpose: purpose.map { Array($0.utf8) },
                patience: patience.map { UInt32(min(max($0 * 1000, 1), 60_000)) } ?? 0, asked: asked, told: told,
                storeChanged: storeChanged)
        } catch {
            throw .failed(error.description)
        }
        try connections.begin(records)
        do throws(Errno) {
            try WorkerThread.start("presentation") { connections.run() }.detach()
        } catch {
            throw .failed(error.description)
        }
    }

    deinit { end() }

    /// Where the item is now, on the host, as far as was told.
    public var path: [UInt8] { shared.state.withLock { $0.path } }

    /// Whether some daemon knows of it just now.
    public var isPresenting: Bool { shared.state.withLock { $0.isPresenting } }

    /// Nothing is asked or told from now on, but what is under way.
    public func end() {
        let isFirst = shared.state.withLock { state in
            defer { (state.isEnded, state.isPresenting) = (true, false) }
            return !state.isEnded
        }
        if isFirst { _ = write(shared.wakeUp.writing.number, [0], 1) }
    }
}
