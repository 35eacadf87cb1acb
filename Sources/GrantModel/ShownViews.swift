/// What one mount shows: the grants of one view, or those of several, with a directory for each view.
public enum ShownViews: Hashable, Sendable {
    /// The grants of the view, at the root of the mount.
    case one(ViewName)
    /// A directory for every view whose name matches. Only daemons before version 0.1.0 serve such mounts.
    case matching(ViewPattern)
    /// A mountpoint for every view whose name matches, and no grants: a daemon for each view mounts it there.
    case mountpoints(ViewPattern)
    /// The documents of the desktop's programs. The host's own (the view `app:`) are at the root, those of each program APP (the view
    /// `app:APP`) in `by-app/APP`. A grant of a directory is shown inside a directory that has the grant's name.
    case documents
    /// The grants of the view of a sandbox that others set up: those up to a time, which it binds itself, in the directory `bound`, and
    /// later ones, which it shows as a whole, in `added`.
    case bound(ViewName, until: Instant)

    /// Whether grants of the view are shown.
    public func shows(_ view: ViewName) -> Bool {
        switch self {
        case .one(let shown), .bound(let shown, _): view == shown
        // A view whose directory can have no name (“..”) is not shown: nowhere else is its place.
        case .matching(let pattern): pattern.matches(view) && directory(of: view) != nil
        case .mountpoints: false
        case .documents: view == ShownViews.host || (view.description.hasPrefix(ShownViews.programs) && directory(of: view) != nil)
        }
    }

    /// Returns the name of the mountpoint of a view, or nil if the mount has none for it.
    public func mountpoint(of view: ViewName) -> GrantName? {
        guard case .mountpoints(let pattern) = self, pattern.matches(view) else { return nil }
        return directory(of: view)
    }

    /// Whether other daemons mount something in it.
    public var hasMountpoints: Bool {
        if case .mountpoints = self { true } else { false }
    }

    /// The view, when exactly one is shown.
    public var onlyView: ViewName? {
        switch self {
        case .one(let view), .bound(let view, _): view
        case .matching, .mountpoints, .documents: nil
        }
    }

    /// The one name of the mount: its source in /proc/mounts, and in messages.
    public var label: ViewName {
        switch self {
        case .one(let view), .bound(let view, _): view
        case .matching(let pattern), .mountpoints(let pattern): pattern.text
        case .documents: ShownViews.documentsLabel
        }
    }

    /// For people.
    public var description: String {
        switch self {
        case .one(let view), .bound(let view, _): "view “\(view)”"
        case .matching(let pattern): "views “\(pattern.text)”"
        case .mountpoints(let pattern): "views “\(pattern.text)”, each a mount of its own,"
        case .documents: "documents"
        }
    }

    /// The form in the store. No view's name has a slash, so a program that knows only mounts of one view refuses to go on instead of
    /// passing this mount over.
    public var recorded: String {
        switch self {
        case .one(let view): view.description
        case .matching(let pattern): "/" + pattern.text.description
        case .mountpoints(let pattern): ShownViews.mountpointsMark + pattern.text.description
        case .documents: "//" + ShownViews.documentsLabel.description
        case .bound(let view, let until): "\(ShownViews.boundMark)\(until.nanoseconds)/\(view)"
        }
    }

    /// The result is nil for anything that `recorded` never returns.
    public init?(recorded text: String) {
        if text == ShownViews.documents.recorded {
            self = .documents
        } else if text.hasPrefix(ShownViews.mountpointsMark) {
            guard let pattern = try? ViewPattern(String(text.dropFirst(ShownViews.mountpointsMark.count))) else { return nil }
            self = .mountpoints(pattern)
        } else if text.hasPrefix(ShownViews.boundMark) {
            let words = text.dropFirst(ShownViews.boundMark.count).split(separator: "/", omittingEmptySubsequences: false)
            guard words.count == 2, let time = Int64(String(words[0]), radix: 10), let view = try? ViewName(String(words[1])) else {
                return nil
            }
            self = .bound(view, until: Instant(nanoseconds: time))
        } else if let view = ShownViews.formerlyMixed(text) {
            self = .one(view)
        } else if text.hasPrefix("/") {
            guard let pattern = try? ViewPattern(String(text.dropFirst())) else { return nil }
            self = .matching(pattern)
        } else {
            guard let view = try? ViewName(text) else { return nil }
            self = .one(view)
        }
    }

    /// The prefix that turns a program's name into the name of its view.
    public static let programs = "app:"
    /// The view of the host's own documents.
    public static let host = ViewName(known: programs)
    /// The directory of `documents` that holds the programs' directories.
    public static let programsDirectory = Array("by-app".utf8)
    private static let documentsLabel = ViewName(known: "documents")
    private static let mountpointsMark = "//mountpoints/"
    private static let boundMark = "//bound/"
    /// The directories of `bound`.
    package static let (boundDirectory, addedDirectory) = (Array("bound".utf8), Array("added".utf8))

    /// The view of a mount that a version before 0.1.0 serves for some of the view's grants: `//main/MODE/VIEW`, `//part/MODE/VIEW`.
    private static func formerlyMixed(_ text: String) -> ViewName? {
        let words = text.split(separator: "/", omittingEmptySubsequences: false)
        guard words.count == 5, words[0].isEmpty, words[1].isEmpty, ["main", "part"].contains(words[2]),
            CacheMode(rawValue: String(words[3])) != nil
        else { return nil }
        return try? ViewName(String(words[4]))
    }
}

/// A pattern for names of views, as a shell has it for files: `*` matches anything, `?` one character.
public struct ViewPattern: Hashable, Sendable {
    /// It has the same rules as a view's name, because it can be used in its place.
    public let text: ViewName

    public init(_ text: String) throws(GrantName.Flaw) { self.text = try ViewName(text) }

    public func matches(_ view: ViewName) -> Bool {
        let (pattern, name) = (Array(text.description.unicodeScalars), Array(view.description.unicodeScalars))
        var (at, next) = (0, 0)
        // The position of the last `*`, and the end of its match so far.
        var star: (pattern: Int, name: Int)?
        while next < name.count {
            if at < pattern.count, pattern[at] == "*" {
                star = (at, next)
                at += 1
            } else if at < pattern.count, pattern[at] == "?" || pattern[at] == name[next] {
                (at, next) = (at + 1, next + 1)
            } else if let last = star {
                star = (last.pattern, last.name + 1)
                (at, next) = (last.pattern + 1, last.name + 1)
            } else {
                return false
            }
        }
        return pattern[at...].allSatisfy { $0 == "*" }
    }
}

/// The path of a grant below the root of a mount. The last name is the grant's own. Those before it
/// are directories that exist only in the mount.
public struct ShownPath: Hashable, Comparable, Sendable, CustomStringConvertible {
    public var directories: [GrantName]
    public var name: GrantName

    public init(_ name: GrantName, in directories: [GrantName] = []) { (self.directories, self.name) = (directories, name) }

    /// All names, from the root on.
    public var names: [GrantName] { directories + [name] }

    /// Compares the bytes of the names.
    public static func < (left: ShownPath, right: ShownPath) -> Bool {
        if left.directories == right.directories { return left.name.bytes.lexicographicallyPrecedes(right.name.bytes) }
        return left.names.lexicographicallyPrecedes(right.names) { $0.bytes.lexicographicallyPrecedes($1.bytes) }
    }

    public var description: String { names.map(\.description).joined(separator: "/") }
}

extension ShownViews {
    /// Returns the path of a grant, whose view has to be shown.
    public func path(of grant: Grant) -> ShownPath {
        switch self {
        case .one, .mountpoints: return ShownPath(grant.name)
        case .matching: return ShownPath(grant.name, in: directory(of: grant.view).map { [$0] } ?? [])
        case .documents:
            var directories: [GrantName] = []
            if let program = directory(of: grant.view), let all = try? GrantName(entry: ShownViews.programsDirectory) {
                directories = [all, program]
            }
            // The programs' directory hides a document of its name.
            if grant.bookmark.document != nil || (directories.isEmpty && grant.name.bytes == ShownViews.programsDirectory) {
                return ShownPath(grant.name, in: directories)
            }
            let last = grant.bookmark.path.split(separator: UInt8(ascii: "/")).last.flatMap { try? GrantName(entry: Array($0)) }
            return last.map { ShownPath($0, in: directories + [grant.name]) } ?? ShownPath(grant.name, in: directories)
        case .bound(_, let until):
            let directory = try? GrantName(entry: grant.created <= until ? ShownViews.boundDirectory : ShownViews.addedDirectory)
            return ShownPath(grant.name, in: directory.map { [$0] } ?? [])
        }
    }

    /// The result of looking a path up in a mount.
    public enum Target {
        /// A grant, or a path `below` it.
        case grant(Grant, below: [[UInt8]])
        /// The root, or a directory that leads to grants.
        case above
        case nothing
    }

    /// Looks names up, from the root of the mount on. `grants`: all grants of the views that are shown.
    public func find(_ names: [[UInt8]], among grants: [Grant]) -> Target {
        if names.isEmpty { return .above }
        var target = Target.nothing
        for grant in grants {
            let path = path(of: grant).names.map(\.bytes)
            if names.starts(with: path) { return .grant(grant, below: Array(names.dropFirst(path.count))) }
            if path.starts(with: names) { target = .above }
        }
        return target
    }

    /// The name of a view's directory, or nil where its grants are at the root.
    private func directory(of view: ViewName) -> GrantName? {
        let name = self == .documents ? String(view.description.dropFirst(ShownViews.programs.count)) : view.description
        return try? GrantName(entry: Array(name.utf8))
    }
}
