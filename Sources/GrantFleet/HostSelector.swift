import GrantModel

/// Selects the hosts of a grant: all, or those whose labels match every term, as in `role=build,zone!=b`. The label `host` is the
/// host's id.
public struct HostSelector: Sendable, Equatable, CustomStringConvertible {
    struct Term: Sendable, Equatable {
        let label: String
        let value: String
        let isEqual: Bool
    }

    /// Sorted by their text, without duplicates.
    let terms: [Term]

    public static let all = HostSelector(terms: [])

    private init(terms: [Term]) { self.terms = terms }

    /// Parses a selector. Throws `.usage` if the text is invalid, or has no positive term: then
    /// only `all` makes the grant readable by all hosts.
    public init(_ text: String) throws(GrantError) {
        if text == "all" || text.isEmpty {
            self = .all
            return
        }
        var terms: [Term] = []
        for word in text.split(separator: ",", omittingEmptySubsequences: false) {
            guard let term = Self.term(word) else {
                throw GrantError(
                    .usage, "“\(text)” names no hosts", cause: "invalid term “\(word)”",
                    advice: "LABEL=VALUE or LABEL!=VALUE, several with commas, or all")
            }
            if !terms.contains(term) { terms.append(term) }
        }
        self.terms = terms.sorted { ($0.isEqual ? 0 : 1, $0.label, $0.value) < ($1.isEqual ? 0 : 1, $1.label, $1.value) }
    }

    private static func term(_ word: Substring) -> Term? {
        guard let equals = word.firstIndex(of: "=") else { return nil }
        let isEqual = !word[..<equals].hasSuffix("!")
        let (label, value) = (String(word[..<equals].dropLast(isEqual ? 0 : 1)), String(word[word.index(after: equals)...]))
        return Labels.isWord(label) && Labels.isWord(value) ? Term(label: label, value: value, isEqual: isEqual) : nil
    }

    public var description: String {
        terms.isEmpty ? "all" : terms.map { "\($0.label)\($0.isEqual ? "=" : "!=")\($0.value)" }.joined(separator: ",")
    }

    /// The part of the key that selects the hosts who may read such grants, by their roles in etcd. Hosts that the other terms exclude
    /// can still read that there is such a grant.
    public var audience: String {
        guard let first = terms.first, first.isEqual else { return "all" }
        return "\(first.label)=\(first.value)"
    }

    public func matches(host: String, _ labels: Labels) -> Bool {
        terms.allSatisfy { term in ((term.label == "host" ? host : labels.values[term.label]) == term.value) == term.isEqual }
    }
}

/// The labels that an administrator gives a host when inviting it.
public struct Labels: Sendable, Equatable {
    public var values: [String: String]

    public init(_ values: [String: String] = [:]) { self.values = values }

    /// Parses words of the form `LABEL=VALUE`. `.usage`.
    public init(words: [String]) throws(GrantError) {
        values = [:]
        for word in words.flatMap({ $0.split(separator: ",") }) {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard parts.count == 2, Labels.isWord(parts[0]), Labels.isWord(parts[1]), parts[0] != "host" else {
                throw GrantError(
                    .usage, "invalid label “\(word)”",
                    advice: "use LABEL=VALUE, of letters, digits, dots, dashes and underscores")
            }
            values[parts[0]] = parts[1]
        }
    }

    /// Whether the text can be a label, a value, or a host's id.
    public static func isWord(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= 63
            && text.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
                default: false
                }
            }
            && text != "." && text != ".."
    }

    public var description: String { values.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: ",") }

    /// Returns all audiences that such a host may read.
    func audiences(of host: String) -> [String] {
        ["all", "host=\(host)"] + values.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
    }
}
