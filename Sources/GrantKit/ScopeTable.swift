import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// The security-scoped accesses that this process has started and not stopped.
///
/// Locking: one lock around the table, held for an access.
final class ScopeTable: Sendable {
    static let process = ScopeTable()

    private struct Scope {
        /// The number of starts without a stop.
        var count: Int
        /// The canonical path at the first start.
        let path: [UInt8]
    }

    /// By the normalised text of the URL, so that a stop finds its start even if nothing exists at the path any more.
    private let scopes = Lock<[[UInt8]: Scope]>([:])

    /// Counts one start of `words`, which lead to `path`.
    func started(_ words: [UInt8], at path: [UInt8]) {
        scopes.withLock { $0[words, default: Scope(count: 0, path: path)].count += 1 }
    }

    /// Counts one stop, if there was a start.
    func stopped(_ words: [UInt8]) {
        scopes.withLock { scopes in
            guard let count = scopes[words]?.count else { return }
            if count > 1 { scopes[words]?.count = count - 1 } else { scopes[words] = nil }
        }
    }

    /// Returns how often access to exactly this was started and not stopped.
    func count(_ words: [UInt8]) -> Int { scopes.withLock { $0[words]?.count ?? 0 } }

    /// Whether access was started to the URL's target, or to a directory above it.
    func covers(_ url: URL) -> Bool {
        guard let words = try? FilePath.words(url) else { return false }
        let path = (try? FilePath.canonical(url)) ?? words
        return scopes.withLock { scopes in
            scopes.contains { MountTable.path(words, isAtOrBelow: $0.key) || MountTable.path(path, isAtOrBelow: $0.value.path) }
        }
    }
}
