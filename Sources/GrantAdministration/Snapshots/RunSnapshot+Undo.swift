import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension RunSnapshot {
    /// The result of an undo.
    public struct UndoResult: Sendable {
        /// The changes that were undone.
        public fileprivate(set) var done: [TreeChange] = []
        /// The changes that were left, and why.
        public fileprivate(set) var left: [(change: TreeChange, cause: String)] = []
    }

    /// Undoes the program's changes, so that the directories are as they were before it began,
    /// except for changes by others since it ended. Those are kept, unless `force`.
    ///
    /// Removed files are moved to `after`. Each file is restored in one step. If the process is
    /// killed, the next call continues. It works with descriptors and follows no link. Files that
    /// cannot be restored are left, and everything else is restored.
    public func undo(force: Bool = false) throws(GrantError) -> UndoResult {
        try lock()
        var result = UndoResult()
        for known in try record.directories {
            let opened = try open(known)
            let stamps = try record.files(of: known.number, .before)
            let comparison = TreeComparison(known, stamps: stamps, staging: staging, opensClosed: true)
            let changes = try comparison.compare(opened.before, opened.now)
            let own = try own(changes, known, force: force, &result)
            try record.save(own.map { ($0.path, $0.now ?? .none) }, of: known.number, .undoing)
            let work = try restorer(opened, known, stamps, comparison)
            work.restore(own)
            // From this call and from one that was killed.
            work.finish(try record.files(of: known.number, .undoing).keys)
            try record.finishUndo(work.done.map(\.path), of: known.number)
            result.done += work.done
            result.left += work.left
        }
        try record.setState(.undone)
        return result
    }

    /// Returns what an undo would restore, and what it would leave.
    public func planUndo(force: Bool = false) throws(GrantError) -> UndoResult {
        var result = UndoResult()
        for known in try record.directories {
            result.done += try own(try changes(in: known, opensClosed: false), known, force: force, &result)
        }
        return result
    }

    private func restorer(
        _ trees: borrowing Opened, _ known: RunRecord.Directory, _ stamps: [[UInt8]: FileStamp], _ comparison: TreeComparison
    ) throws(GrantError) -> TreeRestorer {
        do throws(Errno) {
            let removed = RemovedFiles(directory, number: known.number)
            let directories = try TreeDirectories(trees.now, stamps, prefix: staging, removed)
            return try TreeRestorer(trees, directories, removed, kept: comparison.kept)
        } catch {
            throw GrantError(.system, "run \(id) cannot be undone", cause: error.description)
        }
    }

    /// Returns the changes to files that are still as the program left them.
    private func own(
        _ changes: [TreeChange], _ known: RunRecord.Directory, force: Bool, _ result: inout UndoResult
    ) throws(GrantError) -> [TreeChange] {
        let changes = changes.filter { change in
            if change.aspects.contains(.unread) { result.left.append((change, "it cannot be read")) }
            return !change.aspects.contains(.unread)
        }
        // The state at the end was never recorded, because the program was killed with its command.
        // The present state is taken for it.
        let endIsUnrecorded = try state == .running
        if force || endIsUnrecorded { return changes }
        let (after, begun) = (try record.files(of: known.number, .after), try record.files(of: known.number, .undoing))
        return changes.filter { change in
            if begun[change.path] != nil { return true }
            guard let recorded = after[change.path] else {
                result.left.append((change, "it was changed after the program had ended"))
                return false
            }
            let now = change.now ?? .none
            // A directory's stamp changes with every name in it.
            if recorded == now || (change.isDirectory && (recorded.inode, recorded.born, recorded.mode) == (now.inode, now.born, now.mode))
            {
                return true
            }
            result.left.append((change, "it was changed again after the program had ended"))
            return false
        }
    }
}
