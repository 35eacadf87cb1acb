import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// The output about grants that give access to the same files.
enum OverlapText {
    /// Returns the remark for a `grant` that was made beside others of its view, or nil if there
    /// are none.
    static func beside(_ grant: Grant, _ overlaps: [Overlap]) -> String? {
        if overlaps.isEmpty { return nil }
        let name = "“\(grant.name)”"
        let others = [(Overlap.Relation.same, "is the same \(item(grant)) as"), (.above, "lies inside"), (.below, "holds")].compactMap {
            (relation, verb) -> String? in
            let names = overlaps.filter { $0.relation == relation }.map { "“\($0.grant.name)”" }
            return names.isEmpty ? nil : "\(verb) \(listed(names))"
        }
        return "\(name) \(listed(others)) of the view “\(grant.view)”: revoking one leaves the \(overlaps.count == 1 ? "other" : "others") "
            + "(grantfs revoke --path \(ShellWord.quoted(grant.bookmark.path)) ends them all)"
    }

    /// Returns the remark for a revoked `grant`, or nil if no other grant gives access to its
    /// files.
    static func left(of grant: Grant, _ overlaps: [Overlap]) -> String? {
        if overlaps.isEmpty { return nil }
        let isPart = overlaps.allSatisfy { $0.relation == .below }
        let others = overlaps.map { overlap in
            let place = Terminal.visible(overlap.grant.bookmark.path)
            let how =
                switch overlap.relation {
                case .same: "the same \(item(grant))"
                case .above: "of \(place), which holds it"
                case .below: "of \(place), inside it"
                }
            return "“\(overlap.grant.name)” in view “\(overlap.grant.view)” (\(how))"
        }
        return
            "other grants still reach \(isPart ? "some files" : "the files") of “\(grant.name)”: \(listed(others)) "
            + "(grantfs revoke --path \(ShellWord.quoted(grant.bookmark.path)) ends \(others.count == 1 ? "that" : "them all"))"
    }

    private static func item(_ grant: Grant) -> String { grant.bookmark.document == nil ? "directory" : "file" }

    /// `a`, `a and b`, `a, b and c`.
    private static func listed(_ words: [String]) -> String {
        words.count < 2 ? words.joined() : words.dropLast().joined(separator: ", ") + " and " + words[words.count - 1]
    }

    static func json(_ overlaps: [Overlap]) -> (String, JSON) {
        (
            "reachable",
            .array(
                overlaps.map {
                    .object(
                        JSON.identity($0.grant) + JSON.members("path", $0.grant.bookmark.path) + [
                            ("relation", .string($0.relation.rawValue))
                        ])
                })
        )
    }
}

/// Quotes a word for pasting into a shell.
enum ShellWord {
    static func quoted(_ bytes: [UInt8]) -> String {
        let plain = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-".utf8)
        let text = Terminal.visible(bytes)
        if Array(text.utf8) != bytes {
            // Unprintable bytes in the shell's escapes.
            return "$'" + bytes.map { plain.contains($0) ? String(UnicodeScalar($0)) : "\\x" + Hexadecimal.text([$0]) }.joined() + "'"
        }
        if !bytes.isEmpty, bytes.allSatisfy({ plain.contains($0) || $0 >= 0x80 }) { return text }
        return "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }
}
