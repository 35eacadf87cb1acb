import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore

/// The output about existing grants that the administrator's policy no longer permits.
enum PolicyText {
    /// The forbidden grants, or why that is unknown.
    enum Forbidden {
        case grants([GrantID: PolicyJudge.Verdict])
        case unknown(GrantError)
    }

    static func forbidden(_ store: GrantStore?, _ grants: [GrantDescription]) -> Forbidden {
        guard let store else { return .grants([:]) }
        do throws(GrantError) {
            return .grants(try GrantAdministrator.command(store).forbidden(among: grants))
        } catch {
            return .unknown(error)
        }
    }

    /// `forbidden`: null, or the reason.
    static func member(_ grant: GrantDescription, _ forbidden: Forbidden) -> (String, JSON) {
        let reason: String? =
            switch forbidden {
            case .grants(let verdicts): verdicts[grant.grant.id]?.reason
            case .unknown(let error): error.description
            }
        return ("forbidden", reason.map { .string($0) } ?? .null)
    }

    static func note(_ forbidden: Forbidden, _ grants: [GrantDescription]) {
        switch forbidden {
        case .unknown(let error): Terminal.report(error)
        case .grants(let verdicts):
            for grant in grants {
                guard let verdict = verdicts[grant.grant.id] else { continue }
                Terminal.note(
                    "“\(grant.grant.name)” in the view “\(grant.grant.view)” could not be granted any more, and stays until it is revoked: "
                        + verdict.reason)
            }
        }
    }
}
