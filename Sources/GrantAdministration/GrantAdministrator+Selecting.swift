import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Returns the selected grants, each once, in the order of the selectors. `.notFound` and `.ambiguous` for the first selector that
    /// fails.
    ///
    /// `verb`: the action on the grants. The error then says that it was done to none, as in
    /// “nothing was revoked”.
    public func select(_ selectors: [Selector], view: ViewName? = nil, to verb: String? = nil) throws(GrantError) -> [Grant] {
        guard let verb else { return try select(selectors, view: view) }
        do throws(GrantError) {
            return try select(selectors, view: view)
        } catch {
            throw error.saying("nothing was \(verb)")
        }
    }

    private func select(_ selectors: [Selector], view: ViewName?) throws(GrantError) -> [Grant] {
        let all = try store.grants()
        var result: [Grant] = []
        for selector in selectors {
            let grant: Grant
            do throws(GrantError) {
                grant = try selector.select(from: all, view: view)
            } catch {
                if error.code == .notFound, let view { try requireKnown(view) }
                throw error
            }
            if !result.contains(where: { $0.id == grant.id }) { result.append(grant) }
        }
        return result
    }
}
