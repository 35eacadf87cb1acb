import GrantCoordinator
import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// A pointer for a returned error. There, ARC manages the `NSError?` that it points to. Here, it is
/// a plain pointer. Callers write `var error: NSError?` and `&error`, or `nil`, in both places.
public typealias NSErrorPointer = UnsafeMutablePointer<NSError?>?

/// Coordinates reading and writing with all others who coordinate: readers share, a writer excludes, in order of arrival. It applies to
/// a file, or to a directory with everything in it.
///
/// **Here.** An item that is granted and mounted is coordinated by the daemons of its mounts, with
/// every process that uses the store, by any path that names the item. After `grantfs set NAME
/// --coordination mandatory`, programs without claims wait as well, if they come through the mount.
/// The claim ends with the process, and with the grant: a caller that waits when the grant is
/// revoked gets `fileReadNoPermission` or `fileWriteNoPermission`. Any other item (outside of every
/// grant, nothing mounted, a store that cannot be read) is coordinated among the threads of this
/// process.
///
/// Presenters of an item that is granted and mounted are asked and told in every process that uses
/// the store. Presenters of any other item are asked and told only in this process.
///
/// **There.** Every item is coordinated among all processes by a service of the system, and presenters in other processes are asked.
///
/// **Differences.** A wait for the caller's own task or thread ends with `fileLocking` (EDEADLK below it). There it hangs. An accessor
/// that waits for another task or thread, which wants the same item, hangs here as well, until `cancel()` ends that wait. The class is
/// final, and thread-safe.
///
/// An accessor gets the item at the path by which it was named. In a mandatory grant it gets the
/// path on the host, where no program waits for it.
///
/// The accessor runs on the calling thread, and not at all if there is an error. Access started with
/// `startAccessingSecurityScopedResource()` is not required: the grant counts.
///
/// Locking: its own, for a moment, never during a wait or an accessor.
public final class NSFileCoordinator: NSObject, Sendable {
    struct State {
        var purpose: String
        /// The claims under which accessors run now: presenters are told of moves through them.
        var claims: [CoordinatedClaim] = []
    }

    private let state: Lock<State>
    private let cancellation = Cancellation()

    /// Makes a coordinator. Coordinators of one presenter have the same purpose.
    ///
    /// - Parameter filePresenter: The presenter that does the work, which is then not asked about
    ///   this coordinator's accesses. It is nil for other work.
    public init(filePresenter: (any NSFilePresenter)? = nil) {
        state = Lock(State(purpose: filePresenter.map { PresenterRegistry.purpose(of: $0) } ?? UUID().uuidString))
        super.init()
    }

    /// Claims with the same purpose never block each other, in any process. It is unique, or the presenter's. An empty one is ignored.
    public var purposeIdentifier: String {
        get { state.withLock { $0.purpose } }
        set { if !newValue.isEmpty { state.withLock { $0.purpose = newValue } } }
    }

    /// Ends present and future waits with `userCancelled`. An accessor that runs is not affected.
    public func cancel() { cancellation.cancel() }

    var isCancelled: Bool { cancellation.isCancelled }

    func stopIfCancelled() throws(GrantError) {
        if isCancelled { throw CoordinationError.cancelled.grantError }
    }

    /// Announces a move. There, it lets a sandboxed app change a file's extension. Here it does nothing.
    public func item(at oldURL: URL, willMoveTo newURL: URL) {}

    /// Reports a move to presenters and waiting claimants. Call it in a writing accessor. Outside
    /// of an accessor it does nothing.
    public func item(at oldURL: URL, didMoveTo newURL: URL) {
        guard let old = try? FilePath.words(oldURL), let new = try? FilePath.words(newURL) else { return }
        for claim in state.withLock({ $0.claims }) { claim.tellMoved(old, to: new) }
    }

    /// Waits for all accesses together and runs `body` with their present URLs. If there is no claim, `error` is set and `body` does
    /// not run.
    func coordinate(
        _ accesses: [(url: URL, access: ([UInt8]) -> CoordinatedAccess)], error: NSErrorPointer, isWriting: Bool, _ body: ([URL]) -> Void
    ) {
        do throws(CoordinationError) {
            let work = CoordinatedWork.part()
            let claim = try claim(accesses, for: work)
            defer { end(claim) }
            work.run { body(zip(accesses, claim.paths).map { FilePath.url($1, isDirectory: $0.url.hasDirectoryPath) }) }
        } catch let failure {
            error?.pointee = CocoaError.error(failure, url: accesses.first?.url, isWriting: isWriting)
        }
    }

    func claim(
        _ accesses: [(url: URL, access: ([UInt8]) -> CoordinatedAccess)], for work: CoordinatedWork
    ) throws(CoordinationError) -> CoordinatedClaim {
        let claim = try CoordinatedClaim(try wanted(accesses), wait(for: work), in: .current)
        state.withLock { $0.claims.append(claim) }
        return claim
    }

    /// The same without a thread that waits.
    func take(
        _ accesses: [(url: URL, access: ([UInt8]) -> CoordinatedAccess)], for work: CoordinatedWork,
        _ answer: @escaping @Sendable (Result<CoordinatedClaim, CoordinationError>) -> Void
    ) {
        do throws(CoordinationError) {
            CoordinatedClaim.take(try wanted(accesses), wait(for: work), in: .current) { [self] result in
                if case .success(let claim) = result { state.withLock { $0.claims.append(claim) } }
                answer(result)
            }
        } catch {
            answer(.failure(error))
        }
    }

    private func wait(for work: CoordinatedWork) -> CoordinatedClaim.Wait {
        CoordinatedClaim.Wait(work: work, purpose: purposeIdentifier, timeout: nil, cancellation: cancellation)
    }

    private func wanted(
        _ accesses: [(url: URL, access: ([UInt8]) -> CoordinatedAccess)]
    ) throws(CoordinationError) -> [CoordinatedAccess] {
        var wanted: [CoordinatedAccess] = []
        for (url, access) in accesses {
            do throws(GrantError) {
                wanted.append(access(try FilePath.words(url)))
            } catch {
                throw .failed(error.description)
            }
        }
        return wanted
    }

    func end(_ claim: CoordinatedClaim) {
        state.withLock { state in state.claims.removeAll { $0 === claim } }
        claim.end()
    }
}

/// Work under a claim, which may claim more.
struct CoordinatedWork: Sendable {
    /// The claimant that the daemons see. It is the same for all work that this one has begun.
    let claimant: Claimant
    /// This work, in the claims of this process.
    let id: ClaimantID
    /// The work that has begun this one, and whether that surely waits for it: it does in its own task or thread.
    let origin: (claimant: ClaimantID, waits: Bool)?
    private let task: Int?

    /// What the current task or thread works on, inside an accessor. A task that is begun there has it, too.
    @TaskLocal private static var current: CoordinatedWork?

    private init(_ claimant: Claimant, _ origin: (claimant: ClaimantID, waits: Bool)?) {
        (self.claimant, self.origin) = (claimant, origin)
        id = ClaimantID(Claimant())
        task = CoordinatedWork.currentTask
    }

    static var currentID: ClaimantID? { current?.id }
    private static var currentTask: Int? { withUnsafeCurrentTask { $0?.hashValue } }

    /// A part of the current work.
    static func part() -> CoordinatedWork {
        CoordinatedWork(current?.claimant ?? Claimant(), current.map { ($0.id, $0.task == currentTask) })
    }

    /// Work that nothing waits for.
    static func alone() -> CoordinatedWork { CoordinatedWork(Claimant(), nil) }

    func run<Result>(_ body: () throws -> Result) rethrows -> Result { try CoordinatedWork.$current.withValue(self) { try body() } }

    /// The same in the current task.
    func run<Result>(isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Result) async rethrows -> Result {
        try await CoordinatedWork.$current.withValue(self, operation: body)
    }

    /// Runs `body`, which begins what the current work does not wait for.
    static func apart<Result>(_ body: () throws -> Result) rethrows -> Result { try $current.withValue(nil) { try body() } }
}
