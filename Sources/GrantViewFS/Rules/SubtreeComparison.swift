import CGrantSystem
import Glibc
import GrantSystem
import GrantViewTree

/// Compares what the rules say of everything below a directory, in two places.
struct SubtreeComparison {
    private let view: ViewFS
    private let scope: ScopeNodes
    private let rules: ScopeRules
    /// The entries that may still be compared. More entries or levels count as a difference.
    private var left = 200_000
    private static let mostLevels = 200
    /// The directories of the mount's other grants, if the places differ.
    private var grants = Set<NodeKey>()

    init(_ view: ViewFS, _ scope: ScopeNodes, _ rules: ScopeRules) { (self.view, self.scope, self.rules) = (view, scope, rules) }

    /// Whether something protected that is visible lies below a directory of this state.
    func findsProtected(_ name: UnsafePointer<CChar>, in parent: Int32, _ state: UInt32) -> Bool {
        compare(name, in: parent, state, state) == -EROFS
    }

    /// Compares the subtree of a directory for two states of it.
    ///
    /// Returns 0 if nothing of it is protected, hidden or not, and each name is hidden in both or in none.
    /// Otherwise -EROFS or -EACCES, or an error of the filesystem.
    ///
    /// The rules of another grant that begins there do not follow its place. So for two states that is a difference as well.
    func compare(_ name: UnsafePointer<CChar>, in parent: Int32, _ before: UInt32, _ after: UInt32) -> Int32 {
        var comparison = self
        if before != after {
            comparison.grants = Set(view.names.open.filter { $0.scope.nodes !== scope }.map { NodeKey($0.scope.rootStatus) })
            if comparison.beginsGrant(name, in: parent) { return -EACCES }
        }
        return comparison.walk(name, in: parent, before, after, Place())
    }

    /// Where a comparison is.
    private struct Place {
        var level = 0
        /// Whether a directory above is hidden.
        var isHidden = false
    }

    private func beginsGrant(_ name: UnsafePointer<CChar>, in directory: Int32) -> Bool {
        if grants.isEmpty { return false }
        var status = FileStatus()
        return clinux_statx(directory, name, &status) == 0 && grants.contains(NodeKey(status))
    }

    /// Whether another grant is on the filesystem of a mounted directory.
    private func mayHoldGrant(_ name: UnsafePointer<CChar>, in directory: Int32) -> Bool {
        if grants.isEmpty { return false }
        var status = FileStatus()
        guard clinux_statx(directory, name, &status) == 0 else { return true }
        let device = NodeKey(status).device
        return grants.contains { $0.device == device }
    }

    /// Whether anything below can be judged differently, or be protected.
    private func isOfInterest(_ before: UInt32, _ after: UInt32, _ place: Place) -> Bool {
        (before != after && !place.isHidden) || rules.mayProtect(below: before) || rules.mayProtect(below: after)
    }

    private mutating func walk(
        _ name: UnsafePointer<CChar>, in parent: Int32, _ before: UInt32, _ after: UInt32, _ place: Place
    ) -> Int32 {
        if !isOfInterest(before, after, place) { return 0 }
        let limited = rules.protects && !place.isHidden ? -EROFS : -EACCES
        if place.level == Self.mostLevels { return limited }
        if !scope.ruled.isCurrent(rules) { return -EACCES }
        let opened = view.tree.evictingIfNeeded {
            clinux_open_beneath(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, scope.crossesMounts)
        }
        // Another mount is not shown here. Another grant may begin there.
        if opened == -EXDEV { return mayHoldGrant(name, in: parent) ? -EACCES : 0 }
        if opened < 0 { return opened }
        defer { _ = clinux_close(opened) }
        let folds = scope.ruled.folding.holds(inOpened: opened)
        var (stream, result): (DirectoryStream, Int32) = (DirectoryStream(), 0)
        let error = stream.forEach(in: opened) { entry in
            if isDots(entry.name) { return true }
            left -= 1
            result = left < 0 ? limited : compare(entry, in: (opened, folds), before, after, place)
            return result == 0
        }
        return result != 0 ? result : -error
    }

    private mutating func compare(
        _ entry: borrowing DirectoryStream.Entry, in directory: (descriptor: Int32, folds: Bool), _ before: UInt32, _ after: UInt32,
        _ place: Place
    ) -> Int32 {
        let (directory, folds) = directory
        var isDirectory = entry.type == UInt8(DT_DIR)
        if entry.type == UInt8(DT_UNKNOWN) {
            var status = FileStatus()
            isDirectory = clinux_statx(directory, entry.name, &status) == 0 && status.st.st_mode & S_IFMT == S_IFDIR
        }
        let old = rules.judgeHidden(entry.name, in: before, isDirectory: isDirectory, folds: folds)
        let new = before == after ? old : rules.judgeHidden(entry.name, in: after, isDirectory: isDirectory, folds: folds)
        var below = Place(level: place.level + 1, isHidden: place.isHidden)
        if !place.isHidden {
            if old.isProtected && !old.isHidden || new.isProtected && !new.isHidden { return -EROFS }
            if old.isHidden != new.isHidden { return -EACCES }
            below.isHidden = old.isHidden
        }
        // Its protection outlasts the rule that hides it.
        if old.isProtected || new.isProtected { return -EACCES }
        if !isDirectory { return 0 }
        return beginsGrant(entry.name, in: directory) ? -EACCES : walk(entry.name, in: directory, old.state, new.state, below)
    }
}
