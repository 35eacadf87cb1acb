import Glibc
import GrantAdministration
import GrantCommandLine
import GrantFiles
import GrantModel
import GrantSystem

/// The directories that a configuration of another sandbox gives to a program, each with the rules for what it denies there.
struct ConfiguredGrants {
    struct Granted {
        let path: [UInt8]
        let access: Access
        let rules: GrantRules
    }

    private(set) var grants: [Granted] = []
    /// The words of `--network-hosts`.
    private(set) var hosts: [String] = []
    private(set) var hasNetwork = false
    private let hidden: [Place]
    private let unwritable: [Place]
    /// The configuration's own file, canonical.
    private var file: [UInt8]?

    private struct Place {
        /// Canonical as far as it exists.
        let path: [UInt8]
        /// The rest of a pattern, from the first special name on, or nil for a path.
        let pattern: [UInt8]?
        let written: SandboxConfiguration.Place
    }

    /// Reads a file by its contents: JSON of a sandbox runtime, or TOML of Codex. `profile`: of Codex.
    init(_ word: [UInt8], profile: String?) throws(GrantError) {
        let shown = VisibleText.of(word)
        let file: FileDescriptor
        do throws(Errno) {
            file = try FileDescriptor.open(word, O_RDONLY | O_NONBLOCK)
        } catch {
            throw GrantError(.system, "\(shown) cannot be read", cause: error.description)
        }
        let bytes = try SandboxProfiles.contents(of: file, shown)
        let isJSON = bytes.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) } == UInt8(ascii: "{")
        let configuration: SandboxConfiguration
        if isJSON {
            if profile != nil { throw GrantError(.usage, "run: --config-profile is for Codex, and \(shown) is JSON") }
            configuration = try SandboxRuntimeFile(file: shown).configuration(bytes)
        } else {
            configuration = try CodexPermissions(bytes, file: shown).configuration(profile, root: ".")
        }
        try self.init(configuration)
        // It decides what later programs may do.
        guard let own = try? CanonicalPath.resolve(word) else { return }
        self.file = own
        try protect(own)
    }

    private init(_ configuration: SandboxConfiguration) throws(GrantError) {
        switch configuration.network {
        case .unknown, .none: break
        case .all: hasNetwork = true
        case .hosts(let hosts): self.hosts = hosts
        }
        hidden = try Self.places(configuration.hidden, mayBePattern: true)
        unwritable = try Self.places(configuration.unwritable, mayBePattern: true)
        let writable = try Self.existing(configuration.writable)
        let readable = try Self.existing(configuration.readable).filter { place in
            !writable.contains { MountTable.path(place.path, isAtOrBelow: $0.path) }
        }
        let unprotected = try configuration.unprotected.map { (text) throws(GrantError) in try RulePattern(Array(text.utf8)) }
        for (places, access) in [(writable, Access.readWrite), (readable, .readOnly)] {
            for place in places {
                // Another item contains it, with the same access.
                let isInside = places.contains { $0.path != place.path && MountTable.path(place.path, isAtOrBelow: $0.path) }
                if isInside || grants.contains(where: { $0.path == place.path }) { continue }
                var rules = try self.rules(of: place, access)
                if configuration.protectsTools, access == .readWrite {
                    rules = try ToolProtection.added(to: rules.followed(by: GrantRules(protect: unprotected)))
                    try ToolProtection.requireOutside(place.path, beside: rules)
                }
                grants.append(Granted(path: place.path, access: access, rules: rules))
            }
        }
    }

    /// Returns the rules that the configuration's denials are in a directory that another option grants.
    func rules(of directory: [UInt8], _ access: Access, grantedBy option: String) throws(GrantError) -> GrantRules {
        let path = CanonicalPath.resolveWhatExists(directory)
        let written = SandboxConfiguration.Place(VisibleText.of(directory), option)
        var rules = try self.rules(of: Place(path: path, pattern: nil, written: written), access)
        if access == .readWrite, let file, file != path, MountTable.path(file, isAtOrBelow: path) {
            rules = try rules.followed(by: GrantRules(protect: [RulePattern(exactly: Self.relative(file, to: path))]))
        }
        return rules
    }

    private func rules(of place: Place, _ access: Access) throws(GrantError) -> GrantRules {
        try GrantRules(
            hide: Self.patterns(of: hidden, in: place), protect: access == .readWrite ? Self.patterns(of: unwritable, in: place) : [])
    }

    /// Adds a rule that protects a file.
    private mutating func protect(_ file: [UInt8]) throws(GrantError) {
        grants = try grants.map { (granted) throws(GrantError) in
            guard granted.access == .readWrite, file != granted.path, MountTable.path(file, isAtOrBelow: granted.path) else {
                return granted
            }
            let rule = try RulePattern(exactly: Self.relative(file, to: granted.path))
            return Granted(
                path: granted.path, access: granted.access, rules: try granted.rules.followed(by: GrantRules(protect: [rule])))
        }
    }

    /// Returns the places that exist. A missing one is reported, and those that the sandbox has of its own are left out.
    private static func existing(_ places: [SandboxConfiguration.Place]) throws(GrantError) -> [Place] {
        try self.places(places, mayBePattern: false).filter { place in
            let own = ["/tmp", "/private/tmp", "/var/tmp", "/dev"].map { Array($0.utf8) }
            if own.contains(place.path) || MountTable.path(place.path, isAtOrBelow: own[3]) { return false }
            var status = stat()
            if withCString(place.path, { lstat($0, &status) }) == 0 { return true }
            Terminal.note("\(place.written.key): there is no “\(place.written.path)”")
            return false
        }
    }

    private static func places(_ places: [SandboxConfiguration.Place], mayBePattern: Bool) throws(GrantError) -> [Place] {
        var found: [Place] = []
        for place in places {
            var path = Array(place.path.utf8)
            // The directory with everything below it.
            if path.count > 3, path.suffix(3).elementsEqual("/**".utf8) { path.removeLast(3) }
            if path.isEmpty || path.contains(0) { throw refusal(place, "it is empty or has a NUL byte") }
            if path == [0x7E] || path.starts(with: [0x7E, 0x2F]) { path = SandboxProfiles.home + path.dropFirst() }
            let names = path.split(separator: 0x2F, omittingEmptySubsequences: false).map { Array($0) }
            let plain = names.prefix { name in !name.contains { "*?[{".utf8.contains($0) } }
            if plain.count == names.count {
                let absolute = CanonicalPath.absolute(path)
                found.append(Place(path: CanonicalPath.resolveWhatExists(absolute), pattern: nil, written: place))
                // A link's own name, which may lead elsewhere by then.
                if mayBePattern, let named = try? CanonicalPath.resolveAbove(absolute), named != found.last?.path {
                    found.append(Place(path: named, pattern: nil, written: place))
                }
                continue
            }
            guard mayBePattern else { throw refusal(place, "a pattern cannot be granted") }
            guard !path.contains(where: { "[{\\".utf8.contains($0) }) else { throw refusal(place, "only *, ? and ** are possible in it") }
            let start = Array(plain.joined(separator: [0x2F]))
            let top = CanonicalPath.resolveWhatExists(CanonicalPath.absolute(start.isEmpty ? path.first == 0x2F ? [0x2F] : [0x2E] : start))
            found.append(Place(path: top, pattern: Array(names[plain.count...].joined(separator: [0x2F])), written: place))
        }
        return found
    }

    private static func patterns(of denied: [Place], in granted: Place) throws(GrantError) -> [RulePattern] {
        var patterns: [RulePattern] = []
        for place in denied {
            if let pattern = try pattern(of: place, in: granted), !patterns.contains(pattern) { patterns.append(pattern) }
        }
        return patterns
    }

    /// Returns the rule for a denied place in a granted one, or nil if it lies elsewhere.
    private static func pattern(of denied: Place, in granted: Place) throws(GrantError) -> RulePattern? {
        if MountTable.path(denied.path, isAtOrBelow: granted.path) {
            let below = relative(denied.path, to: granted.path)
            if let pattern = denied.pattern { return try RulePattern([0x2F] + escaped(below) + (below.isEmpty ? [] : [0x2F]) + pattern) }
            if !below.isEmpty { return try RulePattern(exactly: below) }
        } else if !MountTable.path(granted.path, isAtOrBelow: denied.path) {
            return nil
        } else if let pattern = denied.pattern {
            if pattern.starts(with: "**/".utf8) { return try RulePattern(pattern) }
            throw refusal(denied.written, "it cannot be a rule of “\(granted.written.path)”, which lies below")
        }
        throw refusal(denied.written, "“\(granted.written.path)” (\(granted.written.key)) is granted, and lies there")
    }

    private static func relative(_ path: [UInt8], to directory: [UInt8]) -> [UInt8] {
        Array(path.dropFirst(directory.count).drop { $0 == 0x2F })
    }

    private static func escaped(_ path: [UInt8]) -> [UInt8] {
        path.flatMap { "\\*?[ ".utf8.contains($0) ? [UInt8(ascii: "\\"), $0] : [$0] }
    }

    private static func refusal(_ place: SandboxConfiguration.Place, _ cause: String) -> GrantError {
        GrantError(.invalidFile, "\(place.key): “\(place.path)” cannot be followed", cause: cause)
    }
}
