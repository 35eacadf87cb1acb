import GrantModel

/// A profile of a sandbox: what a tool needs to be of use there.
public struct SandboxProfile: Sendable {
    public struct Grant: Sendable {
        public let path: [UInt8]
        public let access: Access
        /// Whether it is left out if it does not exist.
        public var isOptional = false
        /// Whether a link at the path, or above it and below the home, is followed.
        package var followsLinks = true
    }

    public enum Network: Sendable, Equatable {
        case none
        case all
        /// The named hosts, as they were written.
        case hosts([String])
    }

    public private(set) var grants: [Grant] = []
    /// Paths to be shown read-only, if they exist.
    public private(set) var binds: [[UInt8]] = []
    /// Directories that come first in the search path for programs.
    public private(set) var searchPath: [[UInt8]] = []
    public private(set) var environment: [(name: String, value: [UInt8])] = []
    /// The program's access to the network. nil: not specified.
    public private(set) var network: Network?
    /// The keys of the user's git configuration that the sandbox gets: `user.name`.
    public private(set) var gitValues: [String] = []

    /// Parses a file. Throws `.invalidFile`, with the line, for invalid TOML, an unknown key, or an
    /// invalid value.
    ///
    /// - Parameters:
    /// file: the file's name in messages.
    /// home: replaces `~` at the beginning of a path or of a variable's value.
    public init(_ bytes: [UInt8], file: String, home: [UInt8]) throws(GrantError) {
        let reader = SandboxProfileReader(file: file, home: home)
        for (key, value) in try reader.items(of: bytes) {
            switch key {
            case "grant":
                grants = try reader.list(value, key, example: "[[grant]]") { value throws(GrantError) in
                    try reader.grant(value, mayBeOptional: true)
                }
            case "ro-bind": binds = try reader.list(value, key) { value throws(GrantError) in try reader.path(value, key) }
            case "path": searchPath = try reader.list(value, key) { value throws(GrantError) in try reader.path(value, key) }
            case "environment": environment = try reader.environment(value)
            case "network": network = try reader.network(value)
            case "git": gitValues = try reader.list(value, key) { value throws(GrantError) in try reader.gitValue(value) }
            default: throw reader.unknown(key, value, among: ["grant", "ro-bind", "path", "environment", "network", "git"])
            }
        }
    }
}

/// Parses one document.
struct SandboxProfileReader: TOMLReading {
    let file: String
    let home: [UInt8]

    func grant(_ value: TOMLValue, mayBeOptional: Bool = false) throws(GrantError) -> SandboxProfile.Grant {
        guard case .table(let items) = value.kind else { throw wrong(value, "a grant is a table", advice: "[[grant]]") }
        var path: [UInt8]?
        var (access, isOptional, followsLinks) = (Access.readWrite, false, true)
        for (key, item) in items {
            switch key {
            case "path": path = try self.path(item, key)
            case "access": access = try self.access(item, key)
            case "optional" where mayBeOptional:
                guard case .boolean(let answer) = item.kind else { throw wrong(item, "“optional” is true or false") }
                isOptional = answer
            case "links" where mayBeOptional:
                guard case .boolean(let answer) = item.kind else { throw wrong(item, "“links” is true or false") }
                followsLinks = answer
            default: throw unknown(key, item, among: ["path", "access"] + (mayBeOptional ? ["optional", "links"] : []))
            }
        }
        guard let path else { throw wrong(value, "the grant has no path", advice: "path = \"~/src\"") }
        var grant = SandboxProfile.Grant(path: path, access: access, isOptional: isOptional)
        grant.followsLinks = followsLinks
        return grant
    }

    func environment(_ value: TOMLValue) throws(GrantError) -> [(name: String, value: [UInt8])] {
        guard case .table(let items) = value.kind else { throw wrong(value, "“environment” is a table", advice: "[environment]") }
        var result: [(name: String, value: [UInt8])] = []
        for (name, item) in items {
            let text = Array(try self.text(item, name).utf8)
            if name.isEmpty || name.contains("=") || name.utf8.contains(0) || text.contains(0) {
                throw wrong(item, "invalid variable “\(name)”", cause: "its name is empty or has a “=”, or there is a NUL byte")
            }
            result.append((name, expanded(text)))
        }
        return result
    }

    func path(_ value: TOMLValue, _ key: String) throws(GrantError) -> [UInt8] {
        let path = expanded(Array(try text(value, key).utf8))
        guard path.first == 0x2F, !path.contains(0) else {
            throw wrong(value, "the path “\(String(decoding: path, as: UTF8.self))” is not absolute", advice: "/… or ~/…")
        }
        return path
    }

    /// A key as `git config --get` takes it.
    func gitValue(_ value: TOMLValue) throws(GrantError) -> String {
        let name = try text(value, "git")
        let parts = name.split(separator: ".", omittingEmptySubsequences: false)
        let isPlain = parts.allSatisfy { part in !part.isEmpty && part.utf8.allSatisfy { isLetterOrDigit($0) || $0 == 0x2D } }
        guard parts.count == 2, isPlain, name.first != "-" else {
            throw wrong(value, "invalid key of git's configuration “\(name)”", advice: "git = [\"user.name\"]")
        }
        return name
    }

    func network(_ value: TOMLValue) throws(GrantError) -> SandboxProfile.Network {
        if case .boolean(let answer) = value.kind { return answer ? .all : .none }
        guard case .array = value.kind else {
            throw wrong(value, "“network” is true, false or a list of hosts", advice: "network = [\"example.org\"]")
        }
        let hosts = try list(value, "network") { value throws(GrantError) in try text(value, "network") }
        return hosts.isEmpty ? .none : .hosts(hosts)
    }

    private func isLetterOrDigit(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
    }

    private func expanded(_ text: [UInt8]) -> [UInt8] {
        text == [0x7E] || text.starts(with: [0x7E, 0x2F]) ? home + text.dropFirst() : text
    }
}
