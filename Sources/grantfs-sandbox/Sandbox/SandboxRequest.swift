import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantProxy
import GrantSystem

/// The parameters of a sandbox, from the command line and the profiles that it names.
struct SandboxRequest {
    struct Wish {
        let path: [UInt8]
        let access: Access
        var isOfTool = false
        /// Whether a person is asked when it is used.
        var isOffered = false
        /// The path that it must have without links, if these are not followed.
        var plainPath: [UInt8]?
        /// More rules of this directory.
        var rules = GrantRules.none
    }

    private(set) var grants: [Wish] = []
    /// The rules of each granted directory.
    let rules: GrantRules
    /// Throws for a directory that `--grant` may not make writable.
    let checkWritable: @Sendable ([UInt8]) throws(GrantError) -> Void
    private(set) var binds: [SandboxBind] = []
    /// Binds of profiles, which are optional.
    private(set) var toolBinds: [SandboxBind] = []
    private(set) var variables: [(name: String, value: [UInt8])] = []
    /// Directories that come first in the search path for programs.
    private(set) var searchPath: [[UInt8]] = []
    /// The keys of the caller's git configuration that the program gets.
    private(set) var gitValues: [String] = []
    private(set) var hasNetwork: Bool
    /// The hosts that it reaches by a proxy, if it has no network.
    private(set) var hosts: [HostRule] = []

    init(_ arguments: ParsedArguments) throws(GrantError) {
        (rules, checkWritable) = try arguments.sandboxRules()
        hasNetwork = arguments.has("network")
        for list in arguments.options["network-hosts"] ?? [] {
            let words = try ParsedArguments.text(list, "the value of --network-hosts").split(separator: ",")
            if words.isEmpty { throw GrantError(.usage, "the value of --network-hosts is empty") }
            for word in words { hosts.append(try HostRule(String(word))) }
        }
        let isBounded = !hosts.isEmpty
        if isBounded, hasNetwork {
            throw GrantError(.usage, "run: --network allows the whole network", advice: "use only --network or --network-hosts")
        }
        for name in arguments.options["tool"] ?? [] { try add(try SandboxProfiles.profile(named: name)) }
        var configuration: ConfiguredGrants?
        if let file = arguments.bytes("config") {
            configuration = try ConfiguredGrants(file, profile: arguments.text("config-profile"))
        } else if arguments.has("config-profile") {
            throw GrantError(.usage, "run: --config-profile is for --config")
        }
        if let configuration {
            if configuration.hasNetwork { hasNetwork = true }
            for host in configuration.hosts { hosts.append(try HostRule(host)) }
        }
        // A list on the command line overrides profiles. Otherwise the widest of several profiles
        // applies.
        if isBounded { hasNetwork = false }
        if hasNetwork { hosts = [] }
        grants += try SandboxRequest.wishes(arguments)
        if let configuration {
            // What it denies holds in every directory.
            for index in grants.indices {
                let option = grants[index].isOfTool ? "--tool" : "--grant"
                grants[index].rules = try configuration.rules(of: grants[index].path, grants[index].access, grantedBy: option)
            }
            grants += configuration.grants.map { Wish(path: $0.path, access: $0.access, rules: $0.rules) }
        }
        if !grants.isEmpty, arguments.has("view") {
            throw GrantError(
                .usage, "run: --grant and --offer make a view of their own", advice: "leave --view out, or use grantfs grant --view")
        }
        for word in arguments.options["ro-bind"] ?? [] { binds.append(try SandboxBind(word)) }
        variables += try SandboxRequest.variables(arguments.options["env"] ?? [])
    }

    private mutating func add(_ profile: SandboxProfile) throws(GrantError) {
        for grant in profile.grants {
            var status = stat()
            if grant.isOptional, withCString(grant.path, { lstat($0, &status) }) != 0, errno == ENOENT {
                Terminal.note("there is no “\(VisibleText.of(grant.path))”: make it to keep what the program writes there")
                continue
            }
            var wish = Wish(path: grant.path, access: grant.access, isOfTool: true)
            if !grant.followsLinks {
                let path = CanonicalPath.plain(grant.path)
                let home = CanonicalPath.plain(SandboxProfiles.home)
                let isBelow = MountTable.path(path, isAtOrBelow: home)
                wish.plainPath = isBelow ? CanonicalPath.resolveWhatExists(home) + path.dropFirst(home.count) : path
            }
            grants.append(wish)
        }
        for path in profile.binds {
            do throws(GrantError) {
                toolBinds.append(try SandboxBind(path))
            } catch {
                // Most of the paths where a tool may be installed do not exist.
                if error.code != .notFound { throw error }
            }
        }
        searchPath += profile.searchPath
        variables += profile.environment
        gitValues += profile.gitValues
        switch profile.network {
        case .all: hasNetwork = true
        case .hosts(let names): for name in names { hosts.append(try HostRule(name)) }
        case .some(.none), nil: break
        }
    }

    /// `DIR`, `DIR:ro`, and `DIR:rw` for a directory whose name ends in `:ro`.
    private static func wishes(_ arguments: ParsedArguments) throws(GrantError) -> [Wish] {
        var wishes: [Wish] = []
        for given in arguments.options["grant"] ?? [] {
            let (path, access) = try arguments.marked(given, isLiteral: true)
            if path.isEmpty { throw GrantError(.usage, "the value of --grant is empty") }
            wishes.append(Wish(path: path, access: access))
        }
        for given in arguments.options["offer"] ?? [] {
            let (path, access) = try arguments.marked(given, isLiteral: true)
            if path.isEmpty { throw GrantError(.usage, "the value of --offer is empty") }
            wishes.append(Wish(path: path, access: access, isOffered: true))
        }
        return wishes
    }

    private static func variables(_ words: [[UInt8]]) throws(GrantError) -> [(name: String, value: [UInt8])] {
        var result: [(name: String, value: [UInt8])] = []
        for word in words {
            let equals = word.firstIndex(of: UInt8(ascii: "="))
            let name = try ParsedArguments.text(Array(word[..<(equals ?? word.endIndex)]), "the name in --env")
            if name.isEmpty { throw GrantError(.usage, "the value of --env has no name", advice: "--env NAME=VALUE") }
            let value = equals.map { Array(word[($0 + 1)...]) } ?? SandboxEnvironment.value(of: name)
            if let value { result.append((name, value)) }
        }
        return result
    }
}
