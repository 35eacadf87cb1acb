import Glibc
import GrantAdministration
import GrantCommandSupport
import GrantModel
import GrantSystem

/// The options of a volume, as `create -o NAME=VALUE` gives them.
struct VolumeOptions {
    /// The view that it shows. Nil stands for one of its own, which ends with it.
    let view: ViewName?
    /// The directory that is granted to its view.
    let path: [UInt8]?
    let name: GrantName?
    let isReadOnly: Bool
    /// How long the grant of `path` lasts.
    let span: String?
    let rules: GrantRules
    /// Which owners files have in the volume, or nil if those that they have on the host.
    let owners: OwnerMap?

    static let names = ["container", "hide", "map", "map-groups", "name", "only", "path", "protect", "ro", "ttl", "view"]
    private static let ofDirectory = ["hide", "name", "only", "protect", "ro", "ttl"]

    /// Throws `.usage` for the first that is unknown, invalid or meaningless.
    init(_ words: [(name: String, value: String)]) throws(GrantError) {
        for (name, _) in words where !VolumeOptions.names.contains(name) {
            throw GrantError(
                .usage, "unknown option “\(name)” of a volume", advice: "there are \(VolumeOptions.names.joined(separator: ", "))")
        }
        let value = { (name: String) in words.last { $0.name == name }?.value }
        isReadOnly = try VolumeOptions.flag(value("ro"))
        view = try VolumeOptions.view(value("view"))
        path = try VolumeOptions.directory(value("path"))
        if path != nil, view != nil {
            throw GrantError(
                .usage, "a volume has either path or view", cause: "view=VIEW shows the grants that the view has",
                advice: "grantfs grant --view VIEW DIR adds a directory to it")
        }
        if view != nil, value("container") != nil {
            throw GrantError(.usage, "a volume of a container has a view of its own", cause: "it is aborted with the container")
        }
        if path == nil, let name = VolumeOptions.ofDirectory.first(where: { value($0) != nil }) {
            throw GrantError(
                .usage, "the option “\(name)” is for the directory of path",
                advice: view == nil ? "-o path=DIR" : "grantfs set --view changes the grants of a view")
        }
        name = try VolumeOptions.grantName(value("name"))
        span = value("ttl")
        if let span { _ = try Expiry.after(span, now: Instant(nanoseconds: Clock.realtime)) }
        owners = try VolumeOptions.owners(words)
        rules = try GrantRules(
            hide: try VolumeOptions.patterns(value("hide")), protect: try VolumeOptions.patterns(value("protect")),
            only: try VolumeOptions.patterns(value("only")))
    }

    static func owners(_ words: [(name: String, value: String)]) throws(GrantError) -> OwnerMap? {
        let value = { (name: String) in words.last { $0.name == name }?.value }
        guard let users = value("map") else {
            if value("map-groups") == nil { return nil }
            throw GrantError(.usage, "the option “map-groups” needs “map”", advice: "-o map=INSIDE:OUTSIDE:COUNT")
        }
        return try OwnerMap(users: users, groups: value("map-groups"))
    }

    private static func flag(_ value: String?) throws(GrantError) -> Bool {
        switch value {
        case nil, "false", "0": false
        case "", "true", "1": true
        default: throw GrantError(.usage, "the option “ro” has no value but true and false")
        }
    }

    private static func view(_ value: String?) throws(GrantError) -> ViewName? {
        guard let value else { return nil }
        do throws(GrantName.Flaw) {
            return try ViewName(value)
        } catch {
            throw GrantError(.usage, "invalid view “\(value)”", cause: error.rawValue)
        }
    }

    private static func directory(_ value: String?) throws(GrantError) -> [UInt8]? {
        guard let value else { return nil }
        if value.utf8.first == UInt8(ascii: "/") { return Array(value.utf8) }
        throw GrantError(.usage, "the directory “\(value)” of a volume is not an absolute path", advice: "-o path=/srv/data")
    }

    private static func grantName(_ value: String?) throws(GrantError) -> GrantName? {
        guard let value else { return nil }
        do throws(GrantName.Flaw) {
            return try GrantName(chosen: Array(value.utf8))
        } catch {
            throw GrantError(.usage, "invalid name “\(value)” of a grant", cause: error.rawValue)
        }
    }

    private static func patterns(_ value: String?) throws(GrantError) -> [RulePattern] {
        var patterns: [RulePattern] = []
        for word in (value ?? "").utf8.split(separator: UInt8(ascii: ",")) { patterns.append(try RulePattern(Array(word))) }
        return patterns
    }
}
