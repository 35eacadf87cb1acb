import Glibc
import GrantFiles
import GrantSystem

/// A warning about a policy entry that is probably a mistake. The policy's prohibitions apply
/// nevertheless.
public struct PolicyWarning: Sendable {
    /// `FILE:LINE`
    public let place: String
    public let message: String

    /// Checks users, groups and directories of this machine.
    public static func all(in policy: GrantPolicy) -> [PolicyWarning] {
        var found: [PolicyWarning] = []
        for (who, place) in policy.rules.map({ ($0.who, $0.place) }) + policy.revokers.map({ ($0.who, $0.place) }) {
            for subject in who {
                switch subject {
                case .user(let name) where PolicyUser.uid(of: name) == nil:
                    found.append(PolicyWarning(place: place, message: "there is no user “\(name)”"))
                case .group(let name) where PolicyUser.gid(of: name) == nil:
                    found.append(PolicyWarning(place: place, message: "there is no group “\(name)”"))
                default: break
                }
            }
        }
        for rule in policy.rules {
            for directory in rule.directories where !directory.isInHome {
                let target = CanonicalPath.resolveWhatExists(directory.path)
                if target != directory.path {
                    let message =
                        "“\(directory.text)” allows nothing: a link leads from there to \(String(decoding: target, as: UTF8.self)): "
                        + "name that path instead"
                    found.append(PolicyWarning(place: directory.place, message: message))
                } else if !isThere(directory.path) {
                    found.append(PolicyWarning(place: directory.place, message: "there is no “\(directory.text)” now"))
                }
            }
        }
        for directory in policy.never where !directory.isInHome && !isThere(directory.path) {
            found.append(PolicyWarning(place: directory.place, message: "there is no “\(directory.text)” now"))
        }
        return found
    }

    private static func isThere(_ path: [UInt8]) -> Bool {
        var status = stat()
        return withCString(path) { stat($0, &status) } == 0
    }
}
