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
    private let readOnlyParts: [Place]
    /// The configuration's own file and the links to it, each with a canonical directory.
    private var files: [[UInt8]] = []

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
        guard let status = try? file.status().st, status.st_nlink == 1 else {
            throw GrantError(
                .permission, "\(shown) is not read", cause: "it has several names, and a program could write to one", advice: "copy it")
        }
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
        // It decides what later programs may do, and so do links that lead to it.
        files = try Self.names(of: word)
        for name in files { try protect(name) }
    }

    private init(_ configuration: SandboxConfiguration) throws(GrantError) {
        switch configuration.network {
        case .unknown, .none: break
        case .all: hasNetwork = true
        case .hosts(let hosts): self.hosts = hosts
        }
        hidden = try Self.places(configuration.hidden, mayBePattern: true)
        unwritable = try Self.places(configuration.unwritable, mayBePattern: true)
        readOnlyParts = try Self.places(configuration.readOnlyParts, mayBePattern: true)
        try Self.requireOutsideOfSystem(hidden)
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
                var rules = try self.rules(of: place, access, after: configuration.protectsTools ? unprotected : [])
                if configuration.protectsTools, access == .readWrite {
                    rules = try ToolProtection.added(to: rules)
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
        if access == .readWrite {
            for file in files { rules = try Self.protecting(file, in: path, rules) }
        }
        return rules
    }

    /// - Parameter exceptions: Of built-in patterns. What the configuration denies comes after them.
    private func rules(of place: Place, _ access: Access, after exceptions: [RulePattern] = []) throws(GrantError) -> GrantRules {
        let hide = try Self.patterns(of: hidden, in: place)
        if access == .readOnly { return try GrantRules(hide: hide) }
        let parts = readOnlyParts.filter { $0.path != place.path && MountTable.path($0.path, isAtOrBelow: place.path) }
        return try GrantRules(
            hide: hide, protect: exceptions + Self.patterns(of: unwritable, in: place) + Self.patterns(of: parts, in: place))
    }

    /// Throws if a denied path is one that every sandbox shows.
    private static func requireOutsideOfSystem(_ denied: [Place]) throws(GrantError) {
        let system = ["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64"].map {
            CanonicalPath.resolveWhatExists(Array($0.utf8))
        }
        for place in denied where system.contains(where: { MountTable.path(place.path, isAtOrBelow: $0) }) {
            var status = stat()
            // Files that only root may read are not shown.
            guard withCString(place.path, { lstat($0, &status) }) == 0, status.st_mode & 0o004 != 0 else { continue }
            throw refusal(place.written, "the sandbox shows the system's files")
        }
    }

    /// Returns the path of a file, and of every link that leads there, each with a canonical directory.
    private static func names(of word: [UInt8]) throws(GrantError) -> [[UInt8]] {
        var names = CanonicalPath.absolute(word).split(separator: 0x2F).map { Array($0) }[...]
        var (path, found, links): ([UInt8], [[UInt8]], Int) = ([0x2F], [], 0)
        while let name = names.popFirst() {
            if name.elementsEqual(".".utf8) { continue }
            if name.elementsEqual("..".utf8) {
                path = CanonicalPath.parent(of: path)
                continue
            }
            let next = CanonicalPath.join(path, name)
            guard let target = try? CanonicalPath.target(of: next) else {
                path = next
                continue
            }
            found.append(next)
            links += 1
            if links > 40 { throw GrantError(.system, "\(VisibleText.of(word)) cannot be read", cause: Errno(ELOOP).description) }
            if target.first == 0x2F { path = [0x2F] }
            names = (target.split(separator: 0x2F).map { Array($0) } + names)[...]
        }
        return found + [path]
    }

    private static func protecting(_ file: [UInt8], in directory: [UInt8], _ rules: GrantRules) throws(GrantError) -> GrantRules {
        guard MountTable.path(file, isAtOrBelow: directory) else { return rules }
        if file == directory {
            throw GrantError(.usage, "“\(VisibleText.of(file))” cannot be granted for writing", cause: "--config names it")
        }
        return try rules.followed(by: GrantRules(protect: [RulePattern(exactly: relative(file, to: directory))]))
    }

    /// Adds a rule that protects a file.
    private mutating func protect(_ file: [UInt8]) throws(GrantError) {
        grants = try grants.map { (granted) throws(GrantError) in
            if granted.access == .readOnly { return granted }
            return Granted(
                path: granted.path, access: granted.access, rules: try Self.protecting(file, in: granted.path, granted.rules))
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
            while path.count > 1, path.last == 0x2F { path.removeLast() }
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
            if names.contains(where: { $0.count > 2 && $0.contains(part: "**".utf8) }) {
                throw refusal(place, "** has to be a name of its own")
            }
            let start = Array(plain.joined(separator: [0x2F]))
            let top = CanonicalPath.resolveWhatExists(CanonicalPath.absolute(start.isEmpty ? path.first == 0x2F ? [0x2F] : [0x2E] : start))
            found.append(Place(path: top, pattern: Array(names[plain.count...].joined(separator: [0x2F])), written: place))
        }
        return found
    }

    private static func patterns(of denied: [Place], in granted: Place) throws(GrantError) -> [RulePattern] {
        var patterns: [RulePattern] = []
        for place in denied {
            for pattern in try self.patterns(of: place, in: granted) where !patterns.contains(pattern) { patterns.append(pattern) }
        }
        return patterns
    }

    /// Returns the rules for a denied place in a granted one. There are none if it lies elsewhere.
    private static func patterns(of denied: Place, in granted: Place) throws(GrantError) -> [RulePattern] {
        if MountTable.path(denied.path, isAtOrBelow: granted.path) {
            let below = relative(denied.path, to: granted.path)
            if let pattern = denied.pattern { return [try RulePattern([0x2F] + escaped(below) + (below.isEmpty ? [] : [0x2F]) + pattern)] }
            if !below.isEmpty { return [try RulePattern(exactly: below)] }
        } else if !MountTable.path(granted.path, isAtOrBelow: denied.path) {
            return []
        } else if let pattern = denied.pattern {
            let rests = rests(of: pattern, after: relative(granted.path, to: denied.path))
            if !rests.contains(where: { $0.allSatisfy { $0.elementsEqual("**".utf8) } }) {
                return try rests.map { (rest) throws(GrantError) in try RulePattern([0x2F] + rest.joined(separator: [0x2F])) }
            }
        }
        throw refusal(denied.written, "“\(granted.written.path)” (\(granted.written.key)) is granted, and lies there")
    }

    /// Returns what is left of a pattern once its first names have matched a path, in each way in which they can.
    private static func rests(of pattern: [UInt8], after path: [UInt8]) -> [[[UInt8]]] {
        let names = pattern.split(separator: 0x2F).map { Array($0) }
        var states: Set<Int> = [0]
        for name in path.split(separator: 0x2F).map({ Array($0) }) {
            var next: Set<Int> = []
            for state in opened(states, names) where state < names.count {
                if names[state].elementsEqual("**".utf8) {
                    next.insert(state)
                } else if withCString(names[state], { pattern in withCString(name) { fnmatch(pattern, $0, 0) } }) == 0 {
                    next.insert(state + 1)
                }
            }
            states = next
        }
        return states.sorted().map { Array(names[$0...]) }
    }

    /// Adds the states in which `**` stands for no name.
    private static func opened(_ states: Set<Int>, _ names: [[UInt8]]) -> Set<Int> {
        var result = states
        for state in states.sorted() {
            var next = state
            while next < names.count, names[next].elementsEqual("**".utf8) {
                next += 1
                result.insert(next)
            }
        }
        return result
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
