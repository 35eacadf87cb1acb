import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// What happens to a program's changes after its end: `grantfs run --snapshot`, `--review` and `--undo`.
final class RunEnding {
    private enum Manner: String, CaseIterable {
        case snapshot, review, undo
    }

    private let manner: Manner
    private let directories: [[UInt8]]
    private let granted: [[UInt8]]
    private let rules: GrantRules
    private let limit: UInt64
    private var snapshot: RunSnapshot?
    private var hasEnded = false

    /// The result is nil if none of these options was given. Throws `.usage` if nothing is granted
    /// for writing.
    ///
    /// - Parameters:
    /// granted: the directories that the program may write to, canonical.
    /// rules: the rules of each.
    init?(_ arguments: ParsedArguments, granted: [[UInt8]], rules: GrantRules) throws(GrantError) {
        let manners = Manner.allCases.filter { arguments.has($0.rawValue) }
        guard let last = manners.last else {
            if arguments.has("snapshot-limit") {
                throw GrantError(.usage, "run: --snapshot-limit is for --snapshot, --review and --undo")
            }
            return nil
        }
        if arguments.has("review"), arguments.has("undo") {
            throw GrantError(.usage, "run: --undo puts everything back, so there is nothing for --review to ask")
        }
        if granted.isEmpty {
            throw GrantError(
                .usage, "run: --\(last.rawValue) needs a --grant for writing", advice: "--grant DIR")
        }
        manner = last
        (self.granted, self.rules) = (granted, rules)
        // A directory inside another one is copied with that.
        directories = granted.filter { path in !granted.contains { $0 != path && MountTable.path(path, isAtOrBelow: $0) } }
        limit = try arguments.text("snapshot-limit").map { (text) throws(GrantError) in try RunEnding.size(text) } ?? 4 << 30
    }

    /// `500M`, `4G`, or a number of bytes.
    private static func size(_ text: String) throws(GrantError) -> UInt64 {
        let units: [Character: UInt64] = ["K": 10, "M": 20, "G": 30, "T": 40]
        let unit = text.last.flatMap { units[Character($0.uppercased())] }
        let digits = unit == nil ? text[...] : text.dropLast()
        guard let number = UInt64(digits), number <= UInt64.max >> (unit ?? 0) else {
            throw GrantError(.usage, "invalid size “\(text)”", advice: "such as 500M or 4G")
        }
        return number << (unit ?? 0)
    }

    /// Copies the directories. Nothing is left if it throws.
    func begin(_ command: [[UInt8]], _ store: GrantStore) throws(GrantError) {
        let progress = ProgressOutput(isJSON: false)
        defer { progress.end() }
        var lost: [CopyLosses.Loss] = []
        snapshot = try RunSnapshot.make(
            of: directories, rules: rules, granted: granted, for: command, in: store, limit: limit, progress: { progress.show($0) },
            lost: { lost = $0.all })
        progress.end()
        // Warns before the program begins, while it still helps.
        for loss in lost {
            let others = loss.count > 1 ? " and \(loss.count - 1) more" : ""
            Terminal.note(
                "what becomes of “\(Terminal.visible(loss.first))”\(others) can be put back, but not the \(loss.what): this user may not set them"
            )
        }
    }

    /// Something has failed, perhaps before the program was started. Its changes, if any, are kept
    /// for inspection.
    func abandon() {
        guard !hasEnded, let snapshot else { return }
        hasEnded = true
        guard let changes = try? snapshot.recordEnd() else { return }
        if changes.isEmpty { try? snapshot.forget() } else { leave(snapshot, changes) }
    }

    /// Must be called when the program has ended and no write of it is pending.
    func end() throws(GrantError) {
        guard let snapshot else { return }
        hasEnded = true
        let changes = try snapshot.recordEnd()
        if changes.isEmpty {
            Terminal.note("the program has changed nothing in its grants")
            return try snapshot.forget()
        }
        switch manner {
        case .snapshot: leave(snapshot, changes)
        case .undo: try putBack(snapshot)
        case .review:
            guard isatty(0) == 1, isatty(Terminal.standardError) == 1 else { return leave(snapshot, changes) }
            SandboxTerminal.undoModes(of: Terminal.standardError)
            try review(snapshot, changes)
        }
    }

    private func leave(_ snapshot: RunSnapshot, _ changes: [TreeChange]) {
        Terminal.note(
            "\(ChangeText.count(changes)): grantfs diff \(snapshot.id) shows them, grantfs undo \(snapshot.id) puts them back")
    }

    private func putBack(_ snapshot: RunSnapshot) throws(GrantError) {
        let result = try snapshot.undo()
        Terminal.note("put back: \(ChangeText.count(result.done))")
        if result.left.isEmpty { return try snapshot.forget() }
        throw UndoCommand.report(result, snapshot)
    }

    private func review(_ snapshot: RunSnapshot, _ changes: [TreeChange]) throws(GrantError) {
        let most = 30
        for change in changes.prefix(most) { Terminal.say(ChangeText.line(change)) }
        if changes.count > most { Terminal.say("… and \(changes.count - most) more") }
        while true {
            switch Terminal.choice("\(ChangeText.count(changes)). (k)eep, (p)ut back, show the (d)ifferences, or (l)ater?") {
            case "k":
                try snapshot.forget()
                return Terminal.note("kept")
            case "p": return try putBack(snapshot)
            case "d": for change in changes { try ChangeText.printPatch(change, of: snapshot, to: Terminal.standardError) }
            case "l", nil: return leave(snapshot, changes)
            default: continue
            }
        }
    }
}
