import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// The options that cover or protect something in a granted directory, as rules of the grant.
///
/// A mount in a mount of FUSE is attached to a name there, and the kernel removes it when a lookup of that name fails (d_invalidate). A program
/// can cause that by changing modes and names, and so can a change of rules. So rules of the daemon hide and protect these paths.
struct BubblewrapCovers {
    /// The options that rules replace.
    private(set) var replaced: Set<Int> = []
    /// Absolute paths outside.
    private var hidden: [[UInt8]] = []
    private var protected: [[UInt8]] = []

    private static let mounts = BubblewrapBinds.binds.union(BubblewrapBinds.descriptorBinds).union([
        "--tmpfs", "--proc", "--dev", "--mqueue", "--bind-data", "--ro-bind-data", "--overlay", "--tmp-overlay", "--ro-overlay",
    ])
    private static let changes: Set = ["--remount-ro", "--chmod", "--dir", "--file", "--symlink"]

    init(_ line: BubblewrapLine, _ binds: BubblewrapBinds) throws(GrantError) {
        var mounted: [(index: Int, place: [UInt8])] = []
        let granted = Dictionary(binds.granted.map { ($0.index, $0) }, uniquingKeysWith: { $1 })
        for (index, option) in line.options.enumerated() where !binds.absent.contains(index) {
            let isMount = Self.mounts.contains(option.name)
            guard isMount || Self.changes.contains(option.name), let word = option.values.last else { continue }
            let place = CanonicalPath.plain(word)
            if let outer = mounted.last(where: { MountTable.path(place, isAtOrBelow: $0.place) }) {
                if let bind = granted[outer.index], isMount {
                    if place == outer.place {
                        // Nothing of it is seen any more.
                        replaced.insert(outer.index)
                    } else {
                        let below = place.dropFirst(outer.place.count).drop { $0 == 0x2F }
                        try cover(CanonicalPath.join(bind.source, Array(below)), in: bind, option, granted[index], index)
                    }
                } else if replaced.contains(outer.index), granted[outer.index] == nil {
                    guard place == outer.place, option.name == "--remount-ro" || option.name == "--chmod" else {
                        throw Self.refusal(place, "the directory around it is hidden by another option")
                    }
                    replaced.insert(index)
                }
            }
            if isMount { mounted.append((index, place)) }
        }
    }

    /// - Parameter path: The covered path outside, in the granted source.
    private mutating func cover(
        _ path: [UInt8], in bind: BubblewrapBinds.Granted, _ option: BubblewrapLine.Option, _ source: BubblewrapBinds.Granted?, _ index: Int
    ) throws(GrantError) {
        let resolved = CanonicalPath.resolveWhatExists(path)
        let paths = [resolved, (try? CanonicalPath.resolveAbove(path)) ?? path]
        guard paths.allSatisfy({ $0 != bind.source && MountTable.path($0, isAtOrBelow: bind.source) }) else {
            throw Self.refusal(path, "a link leads out of the granted directory")
        }
        if source?.source == resolved {
            if source?.isReadOnly == true { protected += paths }
        } else if option.name == "--tmpfs" || option.isOfNull {
            hidden += paths
            replaced.insert(index)
        } else if !Self.isEmpty(resolved) {
            throw Self.refusal(path, "it would be visible again when the kernel removes the mount, and is not empty")
        }
    }

    /// Whether there is no such file, or an empty directory.
    private static func isEmpty(_ path: [UInt8]) -> Bool {
        var status = stat()
        guard withCString(path, { lstat($0, &status) }) == 0 else { return errno == ENOENT }
        return status.st_mode & S_IFMT == S_IFDIR && (try? DirectoryNames.of(path))?.isEmpty == true
    }

    /// Returns the rules of a granted directory.
    func rules(of choice: BubblewrapBinds.Choice) throws(GrantError) -> GrantRules {
        try GrantRules(hide: patterns(hidden, in: choice), protect: choice.access == .readWrite ? patterns(protected, in: choice) : [])
    }

    private func patterns(_ paths: [[UInt8]], in choice: BubblewrapBinds.Choice) throws(GrantError) -> [RulePattern] {
        var patterns: [RulePattern] = []
        for path in paths where path != choice.source && MountTable.path(path, isAtOrBelow: choice.source) {
            let pattern = try RulePattern(exactly: Array(path.dropFirst(choice.source.count).drop { $0 == 0x2F }))
            if !patterns.contains(pattern) { patterns.append(pattern) }
        }
        return patterns
    }

    private static func refusal(_ path: [UInt8], _ cause: String) -> GrantError {
        GrantError(
            .unsupported, "bwrap: “\(VisibleText.of(path))” cannot be covered in a granted directory", cause: cause,
            advice: "change the order of the options, or use --no-grants")
    }
}

extension BubblewrapLine.Option {
    /// Whether it binds /dev/null.
    fileprivate var isOfNull: Bool {
        BubblewrapBinds.binds.contains(name) && (try? CanonicalPath.resolve(values[0])) == Array("/dev/null".utf8)
    }
}
