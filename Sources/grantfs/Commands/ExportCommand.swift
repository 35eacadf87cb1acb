import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs export`
enum ExportCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: store)
        let now = Instant(nanoseconds: Clock.realtime)
        // Views of single commands are never declared.
        let passing = store.map { TemporaryMount.views(of: $0) } ?? []
        let all = try (store?.grants(view: view) ?? []).filter { !passing.contains($0.view) }
        let active = all.filter { $0.state(at: now) == .active && !$0.isOffered }
        let offers = all.count { $0.state(at: now) == .active && $0.isOffered }
        if offers > 0 { Terminal.note("\(offers == 1 ? "1 offered directory is" : "\(offers) offered directories are") not declared") }
        let empty = Set(all.map(\.view)).union(view.map { [$0] } ?? []).subtracting(active.map(\.view))
        try Terminal.print(GrantFileText.of(active, views: empty.sorted { $0.description < $1.description }), terminator: "")
        if active.isEmpty { Terminal.note("nothing is granted") }
        return 0
    }
}
