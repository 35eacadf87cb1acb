import CGrantSystem
import Glibc
import GrantSystem
import GrantViewTree

/// Compares what the rules say of everything below a directory, in two places.
struct SubtreeComparison {
    private let view: ViewFS
    private let scope: ScopeNodes
    private let rules: ScopeRules

    /// More entries or levels count as a difference.
    private static let mostEntries = 200_000
    private static let mostLevels = 200

    init(_ view: ViewFS, _ scope: ScopeNodes, _ rules: ScopeRules) { (self.view, self.scope, self.rules) = (view, scope, rules) }

    /// Whether something protected lies below a directory of this state.
    func findsProtected(_ name: UnsafePointer<CChar>, in parent: Int32, _ state: UInt32) -> Bool {
        compare(name, in: parent, state, state) == -EROFS
    }

    /// Compares the subtree of a directory for two states of it.
    ///
    /// Returns 0 if nothing of it is protected, and each name is hidden in both or in none.
    /// Otherwise -EROFS or -EACCES, or an error of the filesystem.
    func compare(_ name: UnsafePointer<CChar>, in parent: Int32, _ before: UInt32, _ after: UInt32) -> Int32 {
        var left = Self.mostEntries
        return walk(name, in: parent, before, after, level: 0, &left)
    }

    /// Whether anything below can be judged differently, or be protected.
    private func isOfInterest(_ before: UInt32, _ after: UInt32) -> Bool {
        before != after || rules.mayProtect(below: before) || rules.mayProtect(below: after)
    }

    private func walk(
        _ name: UnsafePointer<CChar>, in parent: Int32, _ before: UInt32, _ after: UInt32, level: Int, _ left: inout Int
    ) -> Int32 {
        if !isOfInterest(before, after) { return 0 }
        let limited = rules.protects ? -EROFS : -EACCES
        if level == Self.mostLevels { return limited }
        if !scope.ruled.isCurrent(rules) { return -EACCES }
        let opened = view.tree.evictingIfNeeded {
            clinux_open_beneath(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, scope.crossesMounts)
        }
        // Another filesystem is not renamed with the directory.
        if opened == -EXDEV { return 0 }
        if opened < 0 { return opened }
        defer { _ = clinux_close(opened) }
        var (stream, result): (DirectoryStream, Int32) = (DirectoryStream(), 0)
        let error = stream.forEach(in: opened) { entry in
            if isDots(entry.name) { return true }
            left -= 1
            result = left < 0 ? limited : compare(entry, in: opened, before, after, level: level, &left)
            return result == 0
        }
        return result != 0 ? result : -error
    }

    private func compare(
        _ entry: DirectoryStream.Entry, in directory: Int32, _ before: UInt32, _ after: UInt32, level: Int, _ left: inout Int
    ) -> Int32 {
        var isDirectory = entry.type == UInt8(DT_DIR)
        if entry.type == UInt8(DT_UNKNOWN) {
            var status = FileStatus()
            isDirectory = clinux_statx(directory, entry.name, &status) == 0 && status.st.st_mode & S_IFMT == S_IFDIR
        }
        let old = rules.judge(entry.name, in: before, isDirectory: isDirectory)
        let new = before == after ? old : rules.judge(entry.name, in: after, isDirectory: isDirectory)
        if !old.isHidden && old.isProtected || !new.isHidden && new.isProtected { return -EROFS }
        if old.isHidden != new.isHidden { return -EACCES }
        if old.isHidden || !isDirectory { return 0 }
        return walk(entry.name, in: directory, old.state, new.state, level: level + 1, &left)
    }
}
