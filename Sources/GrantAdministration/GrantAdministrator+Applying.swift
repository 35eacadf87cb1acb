import GrantModel
import GrantStore

extension GrantAdministrator {
    /// Carries out a plan, first what takes away. If it throws, the earlier changes are kept, and a
    /// new plan does the rest.
    public func apply(
        _ plan: ApplyPlan, timeout: Double = standardTimeout, progress: ((CoordinationProgress) -> Void)? = nil
    ) throws(GrantError) -> [GrantChange] {
        var gone: [Grant] = []
        var new: [Choice] = []
        for step in plan.steps {
            switch step {
            case .withdraw(let grant): gone.append(grant)
            case .replace(let grant, let choice):
                gone.append(grant)
                new.append(choice)
            case .create(let choice): new.append(choice)
            case .change, .restore, .keep, .leave: break
            }
        }
        var changes = gone.isEmpty ? [] : try remove(gone, timeout: timeout, progress: progress)
        for case .change(let grant, let change) in plan.steps {
            changes.append(
                try set(
                    grant, access: change.access, name: nil, expires: change.expires, coordination: change.coordination,
                    rules: change.rules.map { RuleChange($0) },
                    timeout: timeout, progress: progress))
        }
        // After the changes: a restored grant comes back as it is declared.
        let back = plan.steps.compactMap { step in if case .restore(let grant) = step { grant } else { Grant?.none } }
        if !back.isEmpty { changes += try restore(back, timeout: timeout) }
        if !new.isEmpty { changes += try grant(new, timeout: timeout) }
        // Nothing changes for them, but mounts that have not confirmed them before are asked again.
        let kept = plan.steps.compactMap { step in if case .keep(let grant) = step { grant } else { Grant?.none } }
        if !kept.isEmpty { changes += try broadcast(kept, timeout) }
        return changes
    }
}
