import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// The access that this process has started and not stopped.
///
/// Locking: one lock around the table, held for a look or a change of it and nothing else.
final class ScopeTable: Sendable {
    static let process = ScopeTable()

    private struct Scope {
        /// Starts that were not followed by a stop.
        var count: Int
        /// Where it was when access was started first: canonical.
        let path: [UInt8]
    }

    /// By the words of the URL: a stop finds its start also when there is nothing at the path any more.
    private let scopes = Lock<[[UInt8]: Scope]>([:])

    /// Counts one start of `words`, which lead to `path`.
    func started(_ words: [UInt8], at path: [UInt8]) {
        scopes.withLock { $0[words, default: Scope(count: 0, path: path)].count += 1 }
    }

    /// Takes one start back; without one nothing happens.
    func stopped(_ words: [UInt8]) {
        scopes.withLock { scopes in
            guard let count = scopes[words]?.count else { return }
            if count > 1 { scopes[words]?.count = count - 1 } else { scopes[words] = nil }
        }
    }

    /// How often access to exactly this was started and not stopped.
    func count(_ words: [UInt8]) -> Int { scopes.withLock { $0[words]?.count ?? 0 } }

    /// Whether access was started to what the URL leads to, or to a directory above it.
    func covers(_ url: URL) -> Bool {
        guard let words = try? FilePath.words(url) else { return false }
        let path = (try? FilePath.canonical(url)) ?? words
        return scopes.withLock { scopes in
            scopes.contains { MountTable.path(words, isAtOrBelow: $0.key) || MountTable.path(path, isAtOrBelow: $0.value.path) }
        }
    }
}
