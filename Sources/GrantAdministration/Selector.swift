import GrantModel

/// Selects a grant on a command line: by name, id, or a unique prefix of the id of at least eight digits.
public struct Selector: Sendable, CustomStringConvertible {
    public let bytes: [UInt8]

    public static let shortestPrefix = 8

    /// Throws `.usage` if it can be neither a name nor an id.
    public init(_ bytes: [UInt8]) throws(GrantError) {
        do {
            self.bytes = try GrantName(entry: bytes).bytes
        } catch {
            let shown = String(decoding: bytes, as: UTF8.self)
            let advice = error == .slash ? "to revoke by directory, use --path" : nil
            throw GrantError(.usage, "“\(shown)” selects no grant", cause: error.rawValue, advice: advice)
        }
    }

    public var description: String { String(decoding: bytes, as: UTF8.self) }

    /// Returns the selected grant. `.notFound`, `.ambiguous`. A complete id wins over a name that looks like one.
    public func select(from grants: [Grant], view: ViewName?) throws(GrantError) -> Grant {
        let candidates = view.map { view in grants.filter { $0.view == view } } ?? grants
        if let id = GrantID(description), let grant = candidates.first(where: { $0.id == id }) { return grant }
        let found = candidates.filter { $0.name.bytes == bytes || isPrefix(of: $0.id) }
        guard let first = found.first else {
            let place = view.map { " in the view “\($0)”" } ?? ""
            let near = Suggestion.nearest(to: description, among: Set(candidates.map(\.name.description)).sorted())
            throw GrantError(
                .notFound, "there is no grant “\(self)”\(place)",
                advice: near.map { "did you mean “\($0)”?" } ?? "grantfs list --all shows them")
        }
        if found.count == 1 { return first }
        let places = found.map { "\($0.id.description.prefix(12)) in view “\($0.view)”" }.joined(separator: ", ")
        let sameView = Set(found.map(\.view)).count == 1
        throw GrantError(
            .ambiguous, "“\(self)” could be several grants", cause: places,
            advice: sameView ? "use more digits of the id" : "name the view with --view, or use the id")
    }

    private func isPrefix(of id: GrantID) -> Bool {
        guard bytes.count >= Selector.shortestPrefix, bytes.allSatisfy({ Hexadecimal.value(of: $0) != nil }) else { return false }
        return id.description.hasPrefix(description.lowercased())
    }
}
