import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Decides whether a file has left the granted directory. It is inside while one of its names is:
// those of open descriptors, and any in its last directory. Without names, its last place counts.
extension Departure {
    /// No path has more levels.
    private static let highest = 1 << 20
    private static let attempts = 8

    func hasEscaped(_ id: UInt64, _ node: NodePointer) -> Bool {
        guard scope.document == nil, let top = scope.root, id != top.id else { return false }
        var answer = false
        let moment = scope.doubts.load(ordering: .sequentiallyConsistent)
        view.tree.withRoot(of: scope) { root in
            let descriptor = view.tree.pin(node)
            // A node that cannot be reopened is of no use to any caller.
            if root >= 0, descriptor >= 0 {
                let isDirectory = node.pointee.type == S_IFDIR
                answer = isDirectory ? !lies(id, node, descriptor, below: root) : hasEscaped(id, node, descriptor, root)
                if !answer { view.tree.settle(node, since: moment) }
            }
            view.tree.unpin(id, node)
        }
        return answer
    }

    /// Whether a directory lies below `root`: by its path, or, if that is too long, by walking up.
    ///
    /// Rules say nothing of a path that is too long: in their scope the directory counts as hidden.
    private func lies(_ id: UInt64, _ node: NodePointer, _ descriptor: Int32, below root: Int32) -> Bool {
        switch place(descriptor, root, id, node) {
        case 1: true
        case 0: false
        default: !scope.ruled.hasRules && climbs(from: descriptor)
        }
    }

    /// `clinux_lies_below`, repeated while the granted directory is being renamed.
    private func place(_ descriptor: Int32, _ root: Int32, _ id: UInt64?, _ node: NodePointer) -> Int32 {
        for _ in 0..<Self.attempts {
            let place = view.place(of: descriptor, below: root, node, id: id)
            if place != -EAGAIN { return place }
            usleep(1_000)
        }
        return 0
    }

    /// Whether walking up from a directory passes the granted one. Returns false if that fails.
    private func climbs(from directory: Int32) -> Bool {
        guard let top = scope.root?.key, var current = try? FileDescriptor.openAt(directory, ".".utf8, OpenFlags.path | O_DIRECTORY) else {
            return false
        }
        var last: NodeKey?
        for _ in 0..<Self.highest {
            guard let key = NodeKey(descriptor: current.number), key != last else { return false }
            if key == top { return true }
            last = key
            guard let above = try? FileDescriptor.openAt(current.number, "..".utf8, OpenFlags.path | O_DIRECTORY) else { return false }
            current = above
        }
        return false
    }

    private func hasEscaped(_ id: UInt64, _ node: NodePointer, _ descriptor: Int32, _ root: Int32) -> Bool {
        let own = place(descriptor, root, id, node)
        if own == 1 { return false }
        var status = FileStatus()
        guard clinux_statx(descriptor, nil, &status) == 0 else { return true }
        if isFound(node, hasNames: status.st.st_nlink > 0 || own == 0, below: root) { return false }
        if node.pointee.openers.load(ordering: .relaxed) == 0 || (own == 0 && status.st.st_nlink <= 1) { return true }
        return !view.files.numbers(of: id).contains { number in
            guard let file = view.files.acquire(number) else { return false }
            defer { view.files.drop(number) }
            return place(file.pointee.descriptor, root, nil, node) == 1
        }
    }

    /// Whether the rules leave a file's name visible.
    private func isVisible(_ name: UnsafePointer<CChar>, _ directory: ViewFS.Directory, _ descriptor: Int32) -> Bool {
        guard let rules = scope.ruled.current else { return true }
        guard let known = view.ruleState(of: directory, descriptor, rules) else { return false }
        let folds = view.folds(name, in: directory.node, descriptor, known, rules)
        return !rules.judge(name, in: known.state, isDirectory: false, folds: folds).isHidden
    }

    /// Whether a file is found in its last directory, which lies in the grant.
    ///
    /// The directory must have an entry for the file, or have had one until the file lost its last
    /// name.
    private func isFound(_ node: NodePointer, hasNames: Bool, below root: Int32) -> Bool {
        let key = node.pointee.key
        let parent = node.pointee.parent.load(ordering: .relaxed)
        return view.tree.withLive(parent, in: scope) { directory in
            guard directory.pointee.containment.load(ordering: .relaxed) & Containment.escaped == 0 else { return false }
            let number = view.tree.pin(directory)
            defer { view.tree.unpin(parent, directory) }
            guard number >= 0, lies(parent, directory, number, below: root) else { return false }
            return !hasNames || NodeTree.directory(number, leadsTo: key) { isVisible($0, (NodeID(parent), directory), number) }
        } ?? false
    }
}
