import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Returns the views that have a grant, in any state, or a mount, sorted.
    public func views() throws(GrantError) -> [ViewName] {
        let views = Set(try store.grants().map(\.view)).union(try store.mounts().compactMap(\.shown.onlyView))
        return views.sorted { $0.description < $1.description }
    }

    /// Throws `.notFound`, with a suggestion, unless the view has a mount, or has or had a grant in
    /// any state.
    ///
    /// - Parameter advice: what to do if no view has a similar name.
    public func requireKnown(_ view: ViewName, advice: String? = nil) throws(GrantError) {
        let known = try views()
        if known.contains(view) { return }
        if try store.hasGranted(in: view) { return }
        throw GrantAdministrator.unknown(view, among: known, advice: advice)
    }

    /// Returns the error of `requireKnown`. `known` are the existing views.
    public static func unknown(_ view: ViewName, among known: [ViewName], advice: String? = nil) -> GrantError {
        let names = known.map(\.description)
        let near = Suggestion.nearest(to: view.description, among: names)
        let listed = names.map { "“\($0)”" }.joined(separator: ", ")
        let others: String? =
            switch names.count {
            case 0: "nothing is granted yet"
            case 1: "there is only \(listed)"
            case 2...5: "there are \(listed)"
            default: nil
            }
        return GrantError(
            .notFound, "there is no view “\(view)”", cause: others,
            advice: near.map { "did you mean “\($0)”?" } ?? advice ?? "grantfs grant --view \(view) DIR makes it")
    }
}
