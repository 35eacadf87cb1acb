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

    /// Directories of the kernel's, which hide nothing of a person's.
    private static let ofKernel: Set = ["--proc", "--dev", "--mqueue"]

    /// Paths outside of inner binds for writing, and of mounts that hide nothing, by their options.
    private var writable: [Int: [[UInt8]]] = [:]
    private var scratch: [Int: [[UInt8]]] = [:]

    /// The mounts so far, with their places in the sandbox.
    private typealias Mounted = [(index: Int, place: [UInt8])]

    init(_ line: BubblewrapLine, _ binds: BubblewrapBinds) throws(GrantError) {
        var mounted: Mounted = []
        var links: [(place: [UInt8], target: [UInt8])] = []
        let granted = Dictionary(binds.granted.map { ($0.index, $0) }, uniquingKeysWith: { $1 })
        for (index, option) in line.options.enumerated() where !binds.absent.contains(index) {
            let isMount = Self.mounts.contains(option.name)
            guard isMount || Self.changes.contains(option.name), let word = option.values.last else { continue }
            // To bubblewrap a relative path begins at the root.
            let place = try Self.landing(CanonicalPath.plain([0x2F] + word), mounted, links, binds)
            if option.name == "--symlink" { links.append((place, option.values[0])) }
            let outer = mounted.last { MountTable.path(place, isAtOrBelow: $0.place) }
            if let outer, replaced.contains(outer.index), granted[outer.index] == nil {
                guard !isMount, place == outer.place else {
                    throw Self.refusal(place, "the directory around it is hidden by another option")
                }
                replaced.insert(index)
                continue
            }
            if isMount {
                // Nothing of a bind at the same place is seen any more.
                if let outer, outer.place == place, granted[outer.index] != nil { replaced.insert(outer.index) }
                let around = mounted.last { $0.place != place && MountTable.path(place, isAtOrBelow: $0.place) }
                if let around, let bind = granted[around.index] {
                    let below = Array(place.dropFirst(around.place.count).drop { $0 == 0x2F })
                    let isOfSystem =
                        granted[index] == nil && BubblewrapBinds.binds.contains(option.name) || Self.ofKernel.contains(option.name)
                    try add(
                        Cover(
                            index: index, option: option, path: CanonicalPath.join(bind.source, below), outer: bind.source,
                            source: granted[index]?.source, isReadOnly: granted[index]?.isReadOnly == true,
                            mayHide: around.place == [0x2F] && isOfSystem))
                }
                mounted.append((index, place))
            } else if let outer, option.name == "--remount-ro", place == outer.place {
                if let paths = writable[outer.index] { protected += paths }
                if let paths = scratch[outer.index] {
                    // Nothing can be made there.
                    hidden += paths
                    replaced.formUnion([outer.index, index])
                }
            }
        }
    }

    /// Returns the place at which the kernel mounts, which follows links in the directories that are bound so far.
    private static func landing(
        _ place: [UInt8], _ mounted: Mounted, _ links: [(place: [UInt8], target: [UInt8])], _ binds: BubblewrapBinds
    ) throws(GrantError) -> [UInt8] {
        var place = place
        for _ in 0..<40 {
            if let link = links.last(where: { MountTable.path(place, isAtOrBelow: $0.place) }) {
                let target = link.target.first == 0x2F ? link.target : CanonicalPath.join(CanonicalPath.parent(of: link.place), link.target)
                place = CanonicalPath.plain(target + place.dropFirst(link.place.count))
                continue
            }
            guard let outer = mounted.last(where: { MountTable.path(place, isAtOrBelow: $0.place) }), place != outer.place,
                let source = binds.source(of: outer.index)
            else { return place }
            let below = place.dropFirst(outer.place.count).drop { $0 == 0x2F }
            let path = CanonicalPath.join(source, Array(below))
            let resolved = CanonicalPath.resolveWhatExists(path)
            if resolved == path { return place }
            guard MountTable.path(resolved, isAtOrBelow: source) else { throw refusal(place, "a link leads out of the bound directory") }
            let rest = Array(resolved.dropFirst(source == [0x2F] ? 0 : source.count).drop { $0 == 0x2F })
            place = rest.isEmpty ? outer.place : CanonicalPath.join(outer.place, rest)
        }
        throw refusal(place, "there are too many links")
    }

    /// A mount at a path in a granted directory.
    private struct Cover {
        let index: Int
        let option: BubblewrapLine.Option
        /// The covered path outside, and the directory around it that is bound.
        let path: [UInt8]
        let outer: [UInt8]
        /// The source, if that is granted.
        let source: [UInt8]?
        let isReadOnly: Bool
        /// Whether it is a file of the system in a directory that is the root.
        let mayHide: Bool
    }

    private mutating func add(_ cover: Cover) throws(GrantError) {
        let resolved = CanonicalPath.resolveWhatExists(cover.path)
        let paths = [resolved, (try? CanonicalPath.resolveAbove(cover.path)) ?? cover.path]
        guard paths.allSatisfy({ $0 != cover.outer && MountTable.path($0, isAtOrBelow: cover.outer) }) else {
            throw Self.refusal(cover.path, "a link leads out of the granted directory")
        }
        if cover.source == resolved {
            if cover.isReadOnly { protected += paths } else { writable[cover.index] = paths }
        } else if cover.option.isOfNull || cover.option.name == "--tmpfs" && !Self.isEmpty(resolved) {
            hidden += paths
            replaced.insert(cover.index)
        } else if cover.option.name == "--tmpfs" {
            scratch[cover.index] = paths
        } else if !Self.isEmpty(resolved), !cover.mayHide {
            throw Self.refusal(cover.path, "it would be visible again when the kernel removes the mount, and is not empty")
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
