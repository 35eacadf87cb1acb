import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// Coordinated access in modern Swift: asynchronous, with typed errors, cancelled with its task. See `NSFileCoordinator` for which
/// processes it coordinates with.
///
/// ```swift
/// let text = try await CoordinatedFiles.read(url) { try String(contentsOf: $0, encoding: .utf8) }.get()
/// ```
///
/// An error of `work` is the failure of its `Result`. A thrown error says why there was no claim.
/// The wait blocks no thread of Swift's own.
///
/// What `work` coordinates itself, in its own task, fails with `.deadlock` where it would wait for the claim under which it runs. Another
/// task, a child task included, waits until that claim ends, for nothing says whether `work` waits for it. If it does, both wait until the
/// other task is cancelled (`.cancelled`) or its time is over (`.timedOut`): give it a `timeout`.
public enum CoordinatedFiles {
    /// Identifies a part of a program. Claims of one purpose never block each other.
    public struct Purpose: Sendable, Hashable {
        /// The string that all processes compare.
        public let identifier: String

        /// Makes a unique purpose.
        public init() { identifier = UUID().uuidString }
        /// The purpose of a presenter, which is then not asked.
        public init(of presenter: any NSFilePresenter) { identifier = PresenterRegistry.purpose(of: presenter) }
        /// A purpose shared with other processes.
        public init(_ identifier: String) { self.identifier = identifier }
    }

    /// Reads one item while it is claimed.
    ///
    /// With `.forUploading`, `work` gets a snapshot, while the item is free again. The snapshot is removed when `work` returns, unless
    /// it was moved elsewhere. If it cannot be made, the result's failure is a `CocoaError`.
    ///
    /// - Parameters:
    ///   - url: The item, in a mount or on the host.
    ///   - options: The purpose of the read.
    ///   - purpose: Identifies the part of the program that reads.
    ///   - timeout: The longest wait for the claim. The wait has no limit if it is nil.
    ///   - work: Gets the item's present URL, and runs while the item is claimed.
    /// - Returns: The result of `work`.
    /// - Throws: `.cancelled` with its task, `.revoked`, `.timedOut` after `timeout`, `.deadlock`,
    ///   `.daemonDied` or `.failed`.
    public static func read<Value: Sendable>(
        _ url: URL, options: NSFileCoordinator.ReadingOptions = [], purpose: Purpose = Purpose(), timeout: Duration? = nil,
        _ work: @Sendable (URL) async throws -> Value
    ) async throws(CoordinationError) -> Result<Value, any Error> {
        let intent = NSFileAccessIntent.readingIntent(with: url, options: options)
        guard options.contains(.forUploading) else {
            return try await claim([intent], purpose: purpose, timeout: timeout) { try await work($0[0]) }
        }
        let copied = try await claim([intent], purpose: purpose, timeout: timeout) { try await UploadCopy.make(of: $0[0]) }
        switch copied {
        case .failure(let failure as GrantError): return .failure(CocoaError(failure, url: url, isMaking: true))
        case .failure(let failure): return .failure(failure)
        case .success(let copy):
            defer { copy.remove() }
            do {
                return .success(try await work(copy.url))
            } catch {
                return .failure(error)
            }
        }
    }

    /// Writes one item, which need not exist yet. Parameters and errors are those of `read`.
    public static func write<Value: Sendable>(
        _ url: URL, options: NSFileCoordinator.WritingOptions = [], purpose: Purpose = Purpose(), timeout: Duration? = nil,
        _ work: @Sendable (URL) async throws -> Value
    ) async throws(CoordinationError) -> Result<Value, any Error> {
        try await claim([.writingIntent(with: url, options: options)], purpose: purpose, timeout: timeout) { try await work($0[0]) }
    }

    /// Claims several items together, so that two claimants of the same items do not wait for each
    /// other. Errors are those of `read`.
    ///
    /// - Parameters:
    ///   - intents: The items, and the kind of access to each.
    ///   - purpose: Identifies the part of the program that claims.
    ///   - timeout: The longest wait for the claim. The wait has no limit if it is nil.
    ///   - work: Gets the present URLs of the items, in order.
    /// - Returns: The result of `work`.
    public static func claim<Value: Sendable>(
        _ intents: [NSFileAccessIntent], purpose: Purpose = Purpose(), timeout: Duration? = nil,
        _ work: @Sendable ([URL]) async throws -> Value
    ) async throws(CoordinationError) -> Result<Value, any Error> {
        try await claim(intents, purpose: purpose, timeout: timeout, cancellation: Cancellation(), work)
    }

    /// The same with a wait that `cancellation` ends, too.
    static func claim<Value: Sendable>(
        _ intents: [NSFileAccessIntent], purpose: Purpose, timeout: Duration? = nil, cancellation: Cancellation,
        _ work: @Sendable ([URL]) async throws -> Value
    ) async throws(CoordinationError) -> Result<Value, any Error> {
        let coordinated = CoordinatedWork.part()
        let claim = try await take(intents, coordinated, purpose: purpose, timeout: timeout, cancellation)
        defer { claim.end() }
        let urls = zip(intents, claim.paths).map { FilePath.url($1, isDirectory: $0.url.hasDirectoryPath) }
        do {
            return .success(try await coordinated.run { try await work(urls) })
        } catch {
            return .failure(error)
        }
    }

    private static func take(
        _ intents: [NSFileAccessIntent], _ coordinated: CoordinatedWork, purpose: Purpose, timeout: Duration?, _ cancellation: Cancellation
    ) async throws(CoordinationError) -> CoordinatedClaim {
        var accesses: [CoordinatedAccess] = []
        for intent in intents {
            do throws(GrantError) {
                accesses.append(intent.access(try FilePath.words(intent.url)))
            } catch {
                throw .failed(error.description)
            }
        }
        let seconds = timeout.map { Double($0.components.seconds) + Double($0.components.attoseconds) / 1e18 }
        let wait = CoordinatedClaim.Wait(work: coordinated, purpose: purpose.identifier, timeout: seconds, cancellation: cancellation)
        let (environment, wanted) = (GrantEnvironment.current, accesses)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Result<CoordinatedClaim, CoordinationError>, Never>) in
                CoordinatedClaim.take(wanted, wait, in: environment) { continuation.resume(returning: $0) }
            }
        } onCancel: {
            cancellation.cancel()
        }
        return try result.get()
    }
}
