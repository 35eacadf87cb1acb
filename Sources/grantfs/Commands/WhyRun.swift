import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs why RUN`
enum WhyRun {
    /// How many lines a list has for people. JSON has all.
    private static let mostLines = 40

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("view") { throw GrantError(.usage, "why: --view is for a PATH", advice: "RUN is a view itself") }
        guard let store = try arguments.openStoreIfThere() else {
            throw GrantError(.notFound, "there is no run: there is no store yet", advice: "grantfs run --learn … -- PROGRAM makes one")
        }
        let report = try RunReport.find(arguments.operands.first, in: store)
        let command = try store.command(of: report.view)
        if arguments.wantsJSON {
            try Terminal.print(JSON.object(members(report, command)).text)
            return 0
        }
        try Terminal.print("\(report.view)\(command.map { ": \(Terminal.visible($0))" } ?? "")")
        for line in lines(report) { try Terminal.print(line) }
        if report.isEmpty {
            Terminal.note("nothing is recorded that it did not get. Names outside of its grants are recorded with grantfs run --learn")
        } else {
            Terminal.note("grantfs profile \(report.view) prints a profile that grants what is safe of it")
        }
        return 0
    }

    private static func lines(_ report: RunReport) -> [String] {
        section("names outside of its grants", names(report), others: report.otherLookups)
            + section("offered directories", report.granted.filter(\.isOffered).map(offered), others: 0)
            + section("refused in its grants", report.refused.map { refused($0, report) }, others: 0)
            + section(
                "hosts", report.hosts.map { "\(Terminal.visible($0.target))  \(times($0.count)), \(Terminal.visible($0.reason))" },
                others: report.otherHosts)
    }

    private static func section(_ title: String, _ lines: [String], others: Int64) -> [String] {
        if lines.isEmpty, others == 0 { return [] }
        var result = ["\(title):"] + lines.prefix(mostLines).map { "  " + $0 }
        if lines.count > mostLines { result.append("  and \(lines.count - mostLines) more: --json has all") }
        if others > 0 { result.append("  and \(others) more that were only counted") }
        return result
    }

    /// One line for the names in one directory.
    private static func names(_ report: RunReport) -> [String] {
        let home = home
        var groups: [[UInt8]: (count: Int64, names: [RunReport.WantedName])] = [:]
        for name in report.names {
            let group =
                MountTable.path(name.path, isAtOrBelow: home)
                ? WantedDirectories.group(of: name.path.dropFirst(home.count).split(separator: UInt8(ascii: "/")).map { Array($0) })
                    .reduce(home) { CanonicalPath.join($0, $1) }
                : name.path
            groups[group, default: (0, [])].count += name.count
            groups[group]?.names.append(name)
        }
        let sorted = groups.sorted {
            $0.value.count == $1.value.count ? $0.key.lexicographicallyPrecedes($1.key) : $0.value.count > $1.value.count
        }
        return sorted.map { group, uses in
            let isOne = uses.names.count == 1
            let changes = uses.names.contains { $0.access != .read }
            return "\(shown(isOne ? uses.names[0].path : group))  \(times(uses.count))\(isOne ? "" : ", \(uses.names.count) names")"
                + (changes ? ", for writing too" : "")
        }
    }

    private static func offered(_ granted: RunReport.Granted) -> String {
        "\(shown(granted.path))  \(granted.isAllowed ? "allowed, \(granted.access.rawValue)" : "not allowed")"
    }

    private static func refused(_ refused: RunReport.Refused, _ report: RunReport) -> String {
        let granted = report.granted(refused.grant)
        let place = refused.path ?? granted?.path
        let what =
            if let rule = refused.rule {
                Terminal.visible(rule)
            } else if let granted, granted.access == .readOnly, !granted.isChanged {
                "its grant is read-only"
            } else {
                "its grant was withdrawn or read-only"
            }
        return "\(place.map { shown($0) } ?? Terminal.visible(refused.grant?.bytes ?? []))  \(times(refused.count)), \(what)"
    }

    private static func times(_ count: Int64) -> String { count == 1 ? "once" : "\(count) times" }

    /// The caller's home, canonical, or a path that nothing is below.
    private static var home: [UInt8] {
        guard let home = getenv("HOME"), home[0] == CChar(UInt8(ascii: "/")) else { return Array("/nonexistent".utf8) }
        let path = CanonicalPath.resolveWhatExists(CanonicalPath.bytes(of: home))
        return path == [UInt8(ascii: "/")] ? Array("/nonexistent".utf8) : path
    }

    private static func shown(_ path: [UInt8]) -> String {
        let home = home
        let isBelow = path != home && MountTable.path(path, isAtOrBelow: home)
        return Terminal.visible(isBelow ? [UInt8(ascii: "~")] + path.dropFirst(home.count) : path)
    }

    private static func members(_ report: RunReport, _ command: String?) -> [(String, JSON)] {
        let names = report.names.map { name in
            JSON.object(JSON.members("path", name.path) + [("access", .string(name.access.rawValue)), ("count", .integer(name.count))])
        }
        let refused = report.refused.map { refused in
            JSON.object(
                (refused.grant.map { JSON.members("grant", $0.bytes) } ?? [("grant", .null)])
                    + (refused.path.map { JSON.members("path", $0) } ?? [("path", .null)])
                    + [("rule", refused.rule.map { .string($0) } ?? .null), ("count", .integer(refused.count))])
        }
        let offers = report.granted.filter(\.isOffered).map { granted in
            JSON.object(
                JSON.members("path", granted.path)
                    + [("access", .string(granted.access.rawValue)), ("allowed", .bool(granted.isAllowed))])
        }
        let hosts = report.hosts.map { host in
            JSON.object([("host", .string(host.target)), ("reason", .string(host.reason)), ("count", .integer(host.count))])
        }
        return [
            ("run", .string(report.view.description)), ("command", command.map { .string($0) } ?? .null), ("names", .array(names)),
            ("otherLookups", .integer(report.otherLookups)), ("refused", .array(refused)), ("hosts", .array(hosts)),
            ("otherHosts", .integer(report.otherHosts)), ("offers", .array(offers)),
        ]
    }
}
