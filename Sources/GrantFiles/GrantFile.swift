import Glibc
import GrantModel

/// One grant declared in a file.
public struct DeclaredGrant: Sendable {
    public let view: ViewName
    /// nil: the directory's own name.
    public let name: GrantName?
    /// Absolute.
    public let path: [UInt8]
    public let access: Access
    public let expires: Instant?
    public let coordination: Coordination
    public let rules: GrantRules
    /// Whether a granted file is shown in a directory of its own.
    public let asDirectory: Bool
    /// The hosts that a grant of the fleet is for, or nil for all hosts.
    public let hosts: String?
    /// The filesystem at whose root the path of a grant of the fleet begins. If it is nil, the path
    /// is that on the hosts.
    public let filesystem: FilesystemName?
    /// The declaration's location: `FILE:LINE`.
    public let place: String
}

/// The contents of files that declare grants. A view that they name has all its grants there.
public struct DeclaredGrants: Sendable {
    /// The views that the files name, including those without a grant.
    public private(set) var views: Set<ViewName> = []
    public private(set) var grants: [DeclaredGrant] = []

    public init() {}

    /// Parses a file and adds its grants. Throws `.invalidFile`, with the line, for invalid TOML,
    /// an unknown key, or an invalid value.
    ///
    /// - Parameters:
    /// file: the file's name in messages.
    /// home: replaces `~` at the beginning of a path.
    /// isFleet: whether the file declares grants of a fleet, which may name hosts but no files.
    public mutating func read(_ bytes: [UInt8], file: String, home: [UInt8]?, isFleet: Bool = false) throws(GrantError) {
        let reader = GrantFileReader(file: file, home: home, isFleet: isFleet)
        let found = try reader.read(try reader.items(of: bytes))
        views.formUnion(found.views)
        views.formUnion(found.grants.map(\.view))
        grants += found.grants
    }
}

/// Parses one document.
private struct GrantFileReader: TOMLReading {
    let file: String
    let home: [UInt8]?
    let isFleet: Bool

    private static let keys = ["view", "name", "nameHex", "path", "pathHex", "access", "expires", "coordination", "asDirectory"] + ruleKeys
    private static let ruleKeys = ["hide", "protect", "only", "hideHex", "protectHex", "onlyHex"]

    func read(_ items: [(key: String, value: TOMLValue)]) throws(GrantError) -> (views: [ViewName], grants: [DeclaredGrant]) {
        var views: [ViewName] = []
        var grants: [DeclaredGrant] = []
        for (key, value) in items {
            switch (key, value.kind) {
            case ("views", .array(let names)):
                for name in names { views.append(try view(name)) }
            case ("views", _): throw wrong(value, "“views” is a list of names", advice: "views = [\"ci\"]")
            case ("grant", .array(let tables)):
                for table in tables { grants.append(try grant(table)) }
            case ("grant", .table): throw wrong(value, "“grant” must be in double brackets", advice: "[[grant]]")
            default: throw unknown(key, value, among: ["views", "grant"])
            }
        }
        return (views, grants)
    }

    private func grant(_ value: TOMLValue) throws(GrantError) -> DeclaredGrant {
        guard case .table(let items) = value.kind else { throw wrong(value, "a grant is a table", advice: "[[grant]]") }
        var view = ViewName.standard
        var name: GrantName?
        var path: [UInt8]?
        var (access, coordination) = (Access.readWrite, Coordination.advisory)
        var expires: Instant?
        var asDirectory = false
        var hosts: String?
        var filesystem: FilesystemName?
        var rules: [String: [RulePattern]] = [:]
        for (key, item) in items {
            switch key {
            case "view": view = try self.view(item)
            case "name": name = try self.name(Array(try text(item, key).utf8), item)
            case "nameHex": name = try self.name(try bytes(item, key), item)
            case "path": path = try self.path(Array(try text(item, key).utf8), item)
            case "pathHex": path = try self.path(try bytes(item, key), item)
            case "access": access = try self.access(item, key)
            case "coordination": coordination = try word(item, key, "advisory or mandatory")
            case "cache": throw wrong(item, "“cache” is for a whole view", advice: "grantfs mount VIEW MOUNTPOINT -o cache=MODE")
            case "expires": expires = try moment(item)
            case "asDirectory":
                guard case .boolean(let value) = item.kind else { throw wrong(item, "“asDirectory” is true or false") }
                asDirectory = value
            case _ where GrantFileReader.ruleKeys.contains(key):
                let list = key.hasSuffix("Hex") ? String(key.dropLast(3)) : key
                if rules[list] != nil { throw wrong(item, "both “\(list)” and “\(list)Hex” are there", advice: "leave one of them out") }
                rules[list] = try patterns(item, key)
            case "hosts" where isFleet: hosts = try text(item, key)
            case "filesystem" where isFleet:
                filesystem = FilesystemName(try text(item, key))
                if filesystem == nil {
                    throw wrong(item, "“filesystem” names none", advice: "UUID=…, or the source of a network mount, server:/export")
                }
            case "hosts", "filesystem": throw wrong(item, "“\(key)” is for grants of a fleet", advice: "grantfs fleet apply")
            default: throw unknown(key, item, among: GrantFileReader.keys + (isFleet ? ["hosts", "filesystem"] : []))
            }
            if isFleet, key == "asDirectory" || key.hasSuffix("Hex") {
                throw wrong(item, "“\(key)” is not for grants of a fleet")
            }
        }
        guard let path else { throw wrong(value, "the grant has no path", advice: "path = \"/srv/data\"") }
        return DeclaredGrant(
            view: view, name: name, path: path, access: access, expires: expires, coordination: coordination,
            rules: try self.rules(rules, value),
            asDirectory: asDirectory, hosts: hosts, filesystem: filesystem, place: "\(file):\(value.line)")
    }

    private func view(_ value: TOMLValue) throws(GrantError) -> ViewName {
        let text = try text(value, "view")
        do {
            return try ViewName(text)
        } catch {
            throw wrong(value, "invalid view name “\(text)”", cause: error.rawValue)
        }
    }

    private func name(_ bytes: [UInt8], _ value: TOMLValue) throws(GrantError) -> GrantName {
        do {
            return try GrantName(entry: bytes)
        } catch {
            throw wrong(value, "invalid grant name “\(String(decoding: bytes, as: UTF8.self))”", cause: error.rawValue)
        }
    }

    private func path(_ bytes: [UInt8], _ value: TOMLValue) throws(GrantError) -> [UInt8] {
        if bytes.contains(0) { throw wrong(value, "a path is wrong", cause: "it contains a NUL byte") }
        if let home, bytes == [0x7E] || bytes.starts(with: [0x7E, 0x2F]) { return home + bytes.dropFirst() }
        guard bytes.first == 0x2F else {
            throw wrong(value, "the path “\(String(decoding: bytes, as: UTF8.self))” is not absolute")
        }
        return bytes
    }

    /// A point in time, never a duration: a file declares the same whenever it is read.
    private func moment(_ value: TOMLValue) throws(GrantError) -> Instant {
        guard case .moment(let time) = value.kind, let instant = GrantFileTime.instant(time) else {
            throw wrong(value, "“expires” is a date with a time", advice: "expires = 2030-01-31T12:00:00Z, without quotes")
        }
        return instant
    }
}
