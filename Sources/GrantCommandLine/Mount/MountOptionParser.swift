import GrantModel

/// Parses `-o`, as mount(8), fstab and `grantfs mount` pass it.
package struct MountOptionParser {
    package private(set) var options = MountOptions()
    /// Whether to change the flags of an existing mount.
    package private(set) var isRemount = false
    /// Whether a view that no grant names yet may be mounted.
    package private(set) var isNew = false
    /// Whether the view's name is a pattern, and each view that matches is shown in a directory.
    package private(set) var hasSeveralViews = false
    /// Whether a word says that each of several views is a mount, which it is in any case.
    package private(set) var isSeparate = false
    /// mount -s: unknown options are ignored.
    package let isSloppy: Bool

    package init(isSloppy: Bool = false) { self.isSloppy = isSloppy }

    /// Options that mount(8) handles itself but also passes on, and that every filesystem accepts.
    private static let ignored: Set<String> = [
        "defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner", "group", "nogroup", "nofail", "_netdev",
        "default_permissions", "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime", "async", "silent",
        "loud",
    ]

    /// The options for suggestions.
    private static let known = [
        "ro", "rw", "allow_other", "default_permissions", "nosuid", "nodev", "noexec", "noatime", "nodiratime", "store", "submounts",
        "cache", "audit", "audit-of", "idle", "new", "recover", "norecover", "views", "map", "map-groups",
    ]

    /// The words for completion: known options, those with a value up to the `=` or with each possible value.
    package static var completions: [String] {
        known.flatMap { word -> [String] in
            switch word {
            case "cache": CacheMode.allCases.map { "cache=\($0.rawValue)" }
            case "idle": IdleMode.allCases.map { "idle=\($0.rawValue)" }
            case "store", "audit-of", "map", "map-groups": [word + "="]
            default: [word]
            }
        }
    }

    /// Parses a comma-separated list. Later options win. `.usage` names an invalid one.
    package mutating func read(_ list: String) throws(GrantError) {
        for word in MountOptionParser.split(list) where !word.isEmpty {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            try parse(String(parts[0]), value: parts.count > 1 ? String(parts[1]) : nil)
        }
        options.owners = try ownerMap()
    }

    /// The values of `map` and `map-groups`.
    private var owners: (users: String?, groups: String?)

    private func ownerMap() throws(GrantError) -> OwnerMap? {
        guard let users = owners.users else {
            guard let groups = owners.groups else { return nil }
            throw GrantError(
                .usage, "the mount option “map-groups=\(groups)” needs “map”", cause: "it maps groups otherwise than users",
                advice: "map=INSIDE:OUTSIDE:COUNT")
        }
        if options.submounts {
            throw GrantError(.usage, "the mount options “map” and “submounts” exclude each other", cause: "mounts below keep their owners")
        }
        return try OwnerMap(users: users, groups: owners.groups)
    }

    private mutating func parse(_ name: String, value: String?) throws(GrantError) {
        if let value {
            switch name {
            case "store": try setStore(value)
            case "audit": options.audit = try MountOptionParser.audit(value)
            case "audit-of":
                options.auditKinds = try MountOptionParser.kinds(value)
                options.audit = options.audit ?? MountOptions.standardAudit
            case "cache": options.cache = try MountOptionParser.word(value, of: name, "shared, exclusive or none")
            case "idle": options.idle = try MountOptionParser.word(value, of: name, "auto, poll or halt")
            case "map": owners.users = value
            case "map-groups": owners.groups = value
            case "comment", "user", "uhelper", "helper": break
            // Options of the kernel in /proc/mounts, which mount(8) passes back for a remount.
            case "user_id", "group_id", "max_read", "blksize": break
            default:
                if name.lowercased().hasPrefix("x-") || isSloppy { return }
                throw MountOptionParser.unknown("\(name)=\(value)", name)
            }
            return
        }
        switch name {
        case "ro": options.readOnly = true
        case "rw": options.readOnly = false
        case "allow_other": options.allowOther = true
        case "suid": options.allowSetID = true
        case "nosuid": options.allowSetID = false
        case "dev": options.allowDevices = true
        case "nodev": options.allowDevices = false
        case "noexec": options.noExecute = true
        case "exec": options.noExecute = false
        case "noatime": options.noAccessTime = true
        case "atime": options.noAccessTime = false
        case "nodiratime": options.noDirectoryAccessTime = true
        case "diratime": options.noDirectoryAccessTime = false
        case "audit": options.audit = MountOptions.standardAudit
        case "submounts": options.submounts = true
        case "recover": options.recovers = true
        case "norecover": options.recovers = false
        case "new": isNew = true
        case "views": hasSeveralViews = true
        case "separate": isSeparate = true
        case "remount": isRemount = true
        case "store", "cache", "idle", "audit-of", "map", "map-groups":
            throw GrantError(.usage, "the mount option “\(name)” needs a value", advice: "\(name)=…")
        default:
            if MountOptionParser.ignored.contains(name) || name.lowercased().hasPrefix("x-") || isSloppy { return }
            throw MountOptionParser.unknown(name, name)
        }
    }

    private mutating func setStore(_ value: String) throws(GrantError) {
        guard value.hasPrefix("/") else {
            throw GrantError(.usage, "the mount option “store=\(value)” is wrong", cause: "it is not an absolute path")
        }
        options.store = value
    }

    private static func audit(_ value: String) throws(GrantError) -> Int {
        guard let count = Int(value), (100...1_000_000_000).contains(count) else {
            throw GrantError(
                .usage, "the mount option “audit=\(value)” is wrong", cause: "it must be a number of entries, at least 100")
        }
        return count
    }

    private static func kinds(_ value: String) throws(GrantError) -> AuditKinds {
        if let kinds = AuditKinds(words: value) { return kinds }
        throw GrantError(
            .usage, "the mount option “audit-of=\(value)” is wrong",
            advice: "one or several of these, with colons between: " + AuditKinds.words.map(\.word).joined(separator: ", "))
    }

    /// `words`: the possible values, for people.
    private static func word<Word: RawRepresentable<String>>(_ value: String, of name: String, _ words: String) throws(GrantError) -> Word {
        guard let word = Word(rawValue: value) else {
            throw GrantError(.usage, "the mount option “\(name)=\(value)” is unknown", advice: words)
        }
        return word
    }

    private static func unknown(_ shown: String, _ name: String) -> GrantError {
        let near = Suggestion.nearest(to: name, among: known)
        return GrantError(.usage, "unknown mount option “\(shown)”", advice: near.map { "did you mean “\($0)”?" })
    }

    /// Returns the list without these words.
    package static func removing(_ words: Set<String>, from list: String) -> String {
        split(list).filter { !words.contains($0) }.map { word in
            String(word.flatMap { $0 == "," || $0 == "\\" ? ["\\", $0] : [$0] })
        }.joined(separator: ",")
    }

    /// Splits at commas. Within a value `\,` is a comma and `\\` a backslash, as in libfuse.
    private static func split(_ list: String) -> [String] {
        var words = [""]
        var isEscaped = false
        for character in list {
            if isEscaped || (character != "," && character != "\\") {
                words[words.count - 1].append(character)
                isEscaped = false
            } else if character == "," {
                words.append("")
            } else {
                isEscaped = true
            }
        }
        return words
    }
}
