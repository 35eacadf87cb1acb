import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// There, a pointer to an `NSError?` that ARC knows of; here a plain one. `var error: NSError?` and `&error`, or `nil`, are written the same.
public typealias NSErrorPointer = UnsafeMutablePointer<NSError?>?

/// Coordinates reading and writing with everybody else who coordinates: readers share, a writer excludes, in order of arrival, for a file, or a directory with all
/// that lies below.
///
/// **Here.** An item that is granted and mounted is coordinated with every process that uses the store, whichever way each of them names it, by the daemons of the
/// mounts. Where `grantfs set NAME --coordination mandatory` was said, programs that know nothing of this and come through the mount wait as
/// well. The claim ends with the process, and with the grant: whoever waits when the grant is revoked gets `fileReadNoPermission` or
/// `fileWriteNoPermission`. Any other item (outside of every grant, nothing mounted, a store that cannot be read) is coordinated among the threads of this process.
///
/// Presenters of an item that is granted and mounted are asked and told in every process that uses the store, of any other item in this process.
///
/// **There.** Every item is coordinated among all processes by a service of the system, and presenters in other processes are asked.
///
/// **Differences.** A wait that could never end, because it would be for oneself, ends with `fileLocking` (EDEADLK below it); there it
/// hangs. The class is final, and may be used by several threads at once.
///
/// An accessor gets the item where it was named; in a mandatory grant on the host, past those who wait in the mount.
///
/// The accessor runs on the calling thread, and not at all when there is an error. Access started with
/// `startAccessingSecurityScopedResource()` is not asked for: what counts is the grant.
///
/// Locking: its own, for a moment, never while it waits or while an accessor runs.
public final class NSFileCoordinator: NSObject, Sendable {
    struct State {
        var purpose: String
        /// What accessors run under now: presenters are told of moves through them.
        var claims: [CoordinatedClaim] = []
    }

    private let state: Lock<State>
    private let cancellation: Cancellation?

    /// For the work of a presenter, which is then not asked about what this coordinator does; nil for work of nobody's. Coordinators of the same
    /// presenter have the same purpose.
    public init(filePresenter: (any NSFilePresenter)? = nil) {
        state = Lock(State(purpose: filePresenter.map { PresenterRegistry.purpose(of: $0) } ?? UUID().uuidString))
        // Without descriptors for it nothing can be cancelled, and everything else fails too.
        cancellation = try? Cancellation()
        super.init()
    }

    /// Whose claims never block each other: those of one purpose, in whichever processes. Unique, or the presenter's. An empty one is not taken.
    public var purposeIdentifier: String {
        get { state.withLock { $0.purpose } }
        set { if !newValue.isEmpty { state.withLock { $0.purpose = newValue } } }
    }

    /// Waits end with `userCancelled`, those of now and those to come. An accessor that runs is left to its end.
    public func cancel() { cancellation?.cancel() }

    var isCancelled: Bool { cancellation?.isCancelled ?? false }

    func stopIfCancelled() throws(GrantError) {
        if isCancelled { throw CoordinationError.cancelled.grantError }
    }

    /// The item is about to move. There, it lets a sandboxed app give a file another extension. Here nothing happens.
    public func item(at oldURL: URL, willMoveTo newURL: URL) {}

    /// The item has moved: presenters are told, and those who wait for it. To be called by a writing accessor. Nothing happens when it is called elsewhere.
    public func item(at oldURL: URL, didMoveTo newURL: URL) {
        guard let old = try? FilePath.words(oldURL), let new = try? FilePath.words(newURL) else { return }
        for claim in state.withLock({ $0.claims }) { claim.tellMoved(old, to: new) }
    }

    /// Waits for all accesses together and runs `body` with where they are. `error` is set, and `body` not run, when there is no claim.
    func coordinate(
        _ accesses: [(url: URL, access: ([UInt8]) -> CoordinatedAccess)], error: NSErrorPointer, isWriting: Bool, _ body: ([URL]) -> Void
    ) {
        do throws(CoordinationError) {
            let claim = try claim(accesses, claimant: CoordinationTask.claimant)
            defer { end(claim) }
            body(zip(accesses, claim.paths).map { FilePath.url($1, isDirectory: $0.url.hasDirectoryPath) })
        } catch let failure {
            error?.pointee = CocoaError.error(failure, url: accesses.first?.url, isWriting: isWriting)
        }
    }

    func claim(
        _ accesses: [(url: URL, access: ([UInt8]) -> CoordinatedAccess)], claimant: Claimant
    ) throws(CoordinationError) -> CoordinatedClaim {
        var wanted: [CoordinatedAccess] = []
        for (url, access) in accesses {
            do throws(GrantError) {
                wanted.append(access(try FilePath.words(url)))
            } catch {
                throw .failed(error.description)
            }
        }
        guard let cancellation else { throw .failed(Errno(EMFILE).description) }
        let wait = CoordinatedClaim.Wait(claimant: claimant, purpose: purposeIdentifier, timeout: nil, cancellation: cancellation)
        let claim = try CoordinatedClaim(wanted, wait, in: .current)
        state.withLock { $0.claims.append(claim) }
        return claim
    }

    func end(_ claim: CoordinatedClaim) {
        state.withLock { state in state.claims.removeAll { $0 === claim } }
        claim.end()
    }
}

/// Who waits, where that is not simply the thread.
enum CoordinationTask {
    @TaskLocal private static var bound: Claimant?

    static var claimant: Claimant { bound ?? .currentThread }

    static func with<Result>(_ claimant: Claimant, _ body: () throws -> Result) rethrows -> Result {
        try $bound.withValue(claimant) { try body() }
    }
}
