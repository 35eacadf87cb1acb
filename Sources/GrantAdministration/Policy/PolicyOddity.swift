import Glibc
import GrantFiles
import GrantSystem

/// What in a policy is probably not what its writer meant. It takes nothing from what the policy forbids.
public struct PolicyOddity: Sendable {
    /// `FILE:LINE`
    public let place: String
    public let message: String

    /// Looks at users, groups and directories of this machine.
    public static func all(in policy: GrantPolicy) -> [PolicyOddity] {
        var found: [PolicyOddity] = []
        for (who, place) in policy.rules.map({ ($0.who, $0.place) }) + policy.revokers.map({ ($0.who, $0.place) }) {
            for subject in who {
                switch subject {
                case .user(let name) where PolicyUser.uid(of: name) == nil:
                    found.append(PolicyOddity(place: place, message: "there is no user “\(name)”"))
                case .group(let name) where PolicyUser.gid(of: name) == nil:
                    found.append(PolicyOddity(place: place, message: "there is no group “\(name)”"))
                default: break
                }
            }
        }
        for rule in policy.rules {
            for directory in rule.directories where !directory.isInHome {
                let target = CanonicalPath.resolveWhatExists(directory.path)
                if target != directory.path {
                    let message =
                        "“\(directory.text)” allows nothing: a link leads from there to \(String(decoding: target, as: UTF8.self)), which is "
                        + "to be named instead"
                    found.append(PolicyOddity(place: directory.place, message: message))
                } else if !isThere(directory.path) {
                    found.append(PolicyOddity(place: directory.place, message: "there is no “\(directory.text)” now"))
                }
            }
        }
        for directory in policy.never where !directory.isInHome && !isThere(directory.path) {
            found.append(PolicyOddity(place: directory.place, message: "there is no “\(directory.text)” now"))
        }
        return found
    }

    private static func isThere(_ path: [UInt8]) -> Bool {
        var status = stat()
        return withCString(path) { stat($0, &status) } == 0
    }
}
