import GrantCommandLine
import GrantStore

/// Names the directories in which files that programs made beside documents were kept while a command ran.
struct KeptFilesReport {
    private let store: GrantStore
    private let last: Int64?

    /// Begins before the command withdraws or unmounts anything.
    init(_ store: GrantStore) {
        self.store = store
        last = try? store.lastLogNumber()
    }

    func print() {
        guard let last else { return }
        // Best effort: the log and the system's log have them as well.
        try? _ = LogCommand.read(store, after: last) { entry in
            guard let path = entry.keptPath else { return }
            let name = entry.name.map { "“\(Terminal.visible($0.bytes))”" } ?? "a document"
            Terminal.note("what programs made beside \(name) is kept in \(Terminal.visible(path))")
        }
    }
}
