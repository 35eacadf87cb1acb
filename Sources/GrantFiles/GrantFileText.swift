import GrantModel

/// Writes grants as a file that declares them.
public enum GrantFileText {
    /// Returns the grants in their order, without default values. `views`: views to be declared without a grant.
    public static func of(_ grants: [Grant], views: [ViewName] = []) -> String {
        var text = ""
        if !views.isEmpty {
            text += "views = [" + views.map { TOMLValue.quoted($0.description) }.joined(separator: ", ") + "]\n"
        }
        for grant in grants {
            var lines = ["[[grant]]", "view = " + TOMLValue.quoted(grant.view.description)]
            lines.append(line("name", grant.name.bytes))
            lines.append(line("path", grant.bookmark.path))
            if grant.access != .readWrite { lines.append("access = " + TOMLValue.quoted(grant.access.rawValue)) }
            if let expires = grant.expires { lines.append("expires = " + GrantFileTime.text(expires)) }
            if grant.bookmark.document?.form == .directory { lines.append("asDirectory = true") }
            if grant.coordination != .advisory { lines.append("coordination = " + TOMLValue.quoted(grant.coordination.rawValue)) }
            for (name, patterns) in grant.rules.lists where !patterns.isEmpty { lines.append(line(name, patterns.map(\.text))) }
            text += (text.isEmpty ? "" : "\n") + lines.joined(separator: "\n") + "\n"
        }
        return text
    }

    /// A list with bytes that are not UTF-8 is hexadecimal as a whole, because the order of patterns counts.
    private static func line(_ key: String, _ items: [[UInt8]]) -> String {
        let texts = items.map { String(validating: $0, as: UTF8.self) }
        let isText = !texts.contains(nil)
        let shown = isText ? texts.compactMap { $0 } : items.map { Hexadecimal.text($0) }
        return "\(key)\(isText ? "" : "Hex") = [" + shown.map { TOMLValue.quoted($0) }.joined(separator: ", ") + "]"
    }

    /// Bytes that are not UTF-8 are written in hexadecimal, because TOML cannot hold them.
    private static func line(_ key: String, _ bytes: [UInt8]) -> String {
        guard let text = String(validating: bytes, as: UTF8.self) else { return "\(key)Hex = \(TOMLValue.quoted(Hexadecimal.text(bytes)))" }
        return "\(key) = \(TOMLValue.quoted(text))"
    }
}
