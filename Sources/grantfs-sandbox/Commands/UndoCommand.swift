import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs undo`
enum UndoCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        guard let store = try arguments.openStoreIfThere() else {
            throw GrantError(.notFound, "there is no snapshot of a run", advice: "grantfs run --snapshot makes one")
        }
        let snapshot = try RunSnapshot.find(try DiffCommand.word(arguments), in: store)
        let isForced = arguments.has("force")
        let result = try arguments.has("dry-run") ? snapshot.planUndo(force: isForced) : snapshot.undo(force: isForced)
        if arguments.wantsJSON {
            try Terminal.print(json(result, snapshot).text)
        } else {
            for change in result.done { try Terminal.print(ChangeText.line(change)) }
            Terminal.note(
                (arguments.has("dry-run") ? "would be put back: " : "put back: ") + ChangeText.count(result.done)
                    + (result.done.isEmpty || arguments.has("dry-run")
                        ? "" : ". Removed items are in \(Terminal.visible(CanonicalPath.join(snapshot.path, Array("after".utf8))))"))
        }
        if result.left.isEmpty { return 0 }
        throw report(result, snapshot)
    }

    private static func json(_ result: RunSnapshot.UndoResult, _ snapshot: RunSnapshot) -> JSON {
        .object([
            ("id", .string(snapshot.id)), ("putBack", .array(result.done.map { ChangeText.json($0) })),
            ("left", .array(result.left.map { .object([("cause", .string($0.cause)), ("change", ChangeText.json($0.change))]) })),
        ])
    }

    /// Prints the changes that were not undone, and returns the error for them.
    static func report(_ result: RunSnapshot.UndoResult, _ snapshot: RunSnapshot) -> GrantError {
        for (change, cause) in result.left {
            Terminal.note("“\(String(decoding: change.place, as: UTF8.self))” is unchanged: \(cause)")
        }
        return GrantError(
            .incomplete, "not everything of run \(snapshot.id) was put back", cause: ChangeText.count(result.left.map(\.change)) + " left",
            advice: "grantfs undo --force \(snapshot.id) puts that back, too")
    }
}
