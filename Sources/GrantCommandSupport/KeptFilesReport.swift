import GrantCommandLine
import GrantStore

/// Names the directories in which files that programs made beside documents were kept while a command ran.
package struct KeptFilesReport {
    private let store: GrantStore
    private let last: Int64?

    /// Begins before the command withdraws or unmounts anything.
    package init(_ store: GrantStore) {
        self.store = store
        last = try? store.lastLogNumber()
    }

    package func print() {
        guard let last else { return }
        // Best effort: the log and the system's log have them as well.
        try? _ = store.readLog(after: last) { entry in
            guard let path = entry.keptPath else { return }
            let name = entry.name.map { "“\(Terminal.visible($0.bytes))”" } ?? "a document"
            Terminal.note("what programs made beside \(name) is kept in \(Terminal.visible(path))")
        }
    }
}
