import Glibc
import GrantSystem

/// What snapd marks the programs of a snap by: the AppArmor profile `snap.NAME.APP`, and a control group of such a name.
enum SnapLabel: Equatable {
    /// No snap.
    case none
    case snap(String)
    /// Something of snapd's that does not say which snap it is: a program that is on its way into a sandbox, or a name that is none.
    case unclear

    /// Returns the result of the control group and the labels of security modules. If they
    /// contradict each other, it is `unclear`.
    static func of(_ pid: Int32) throws(Errno) -> SnapLabel {
        let groups = try File.contents(of: "/proc/\(pid)/cgroup".utf8)
        var all = [SnapLabel(groups: groups)]
        for name in ["apparmor/current", "current"] {
            do throws(Errno) {
                all.append(SnapLabel(label: try File.contents(of: "/proc/\(pid)/attr/\(name)".utf8)))
            } catch {
                // There is no such module, or it says nothing.
                guard [ENOENT, EINVAL, ENODATA, EOPNOTSUPP].contains(error.rawValue) else { throw error }
            }
        }
        return together(all)
    }

    static func together(_ all: [SnapLabel]) -> SnapLabel {
        let some = all.filter { $0 != .none }
        guard let first = some.first else { return .none }
        return some.allSatisfy { $0 == first } ? first : .unclear
    }

    /// What a security module calls the process: `snap.NAME.APP (enforce)`.
    init(label: [UInt8]) {
        let text = String(decoding: label.prefix { $0 != 0 && $0 != 0x0A }, as: UTF8.self)
        let found = text.split(whereSeparator: { " /&:".contains($0) }).map { SnapLabel.named(String($0), least: 3) }
        self = SnapLabel.together(found)
    }

    /// /proc/PID/cgroup: `0::/user.slice/…/snap.NAME.APP-UUID.scope`, or `/snap.NAME` in the hierarchies of version 1.
    init(groups: [UInt8]) {
        let parts = groups.split(separator: 0x0A).flatMap { line in
            // The number, the controllers and the path, which may have colons.
            (line.split(separator: 0x3A, maxSplits: 2, omittingEmptySubsequences: false).last ?? []).split(separator: 0x2F)
        }
        self = SnapLabel.together(parts.map { SnapLabel.named(String(decoding: $0, as: UTF8.self), least: 2) })
    }

    private static func named(_ word: String, least: Int) -> SnapLabel {
        if word.hasPrefix("snap-confine") || word.hasPrefix("snap-update-ns") { return .unclear }
        guard word.hasPrefix("snap.") else { return .none }
        let parts = word.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count >= least, isName(parts[1]) else { return .unclear }
        return .snap(String(decoding: parts[1], as: UTF8.self))
    }

    /// Small letters, digits and `-`, with a key behind `_` where a snap is installed several times.
    private static func isName(_ name: Substring.UTF8View) -> Bool {
        let isPlain = { (byte: UInt8) in (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte) }
        let parts = name.split(separator: UInt8(ascii: "_"), omittingEmptySubsequences: false)
        guard (1...40).contains(parts[0].count), parts.count <= 2, parts[0].allSatisfy({ isPlain($0) || $0 == 0x2D }) else { return false }
        return parts.count == 1 || ((1...10).contains(parts[1].count) && parts[1].allSatisfy(isPlain))
    }
}
