import CGrantSystem
import Glibc
import GrantSystem
import GrantViewTree

// Names on filesystems that find a file by several spellings of its name, as vfat does and ext4 in
// directories with the flag `casefold`. A rule holds for each of them.
extension ViewFS {
    /// Whether a directory finds a name under other spellings.
    ///
    /// A directory can get the flag while it is empty. So it is looked at again for each name of which the
    /// rules say something else then.
    func folds(
        _ name: UnsafePointer<CChar>, in node: NodePointer, _ descriptor: Int32, _ directory: RuledDirectory, _ rules: ScopeRules
    ) -> Bool {
        var directory = directory
        if directory.folds == .no, node.pointee.withOwner({ $0.ruled.folding == .inFlaggedDirectories }) {
            if !rules.dependsOnFolding(name, in: directory.state) { return false }
            directory.folds = .unknown
        }
        return folds(node, descriptor, directory)
    }

    /// Judges a name, and tells whether its directory finds names under other spellings: as `folds`, in one step.
    @inline(__always)
    func judge(
        _ name: UnsafePointer<CChar>, in node: NodePointer, _ descriptor: Int32, _ directory: RuledDirectory, isDirectory: Bool,
        _ rules: ScopeRules
    ) -> (finding: ScopeRules.Finding, folds: Bool) {
        guard directory.folds == .no, node.pointee.withOwner({ $0.ruled.folding == .inFlaggedDirectories }) else {
            let folds = folds(node, descriptor, directory)
            return (rules.judge(name, in: directory.state, isDirectory: isDirectory, folds: folds), folds)
        }
        var folds = false
        let finding = rules.judge(name, in: directory.state, isDirectory: isDirectory) {
            var unknown = directory
            unknown.folds = .unknown
            folds = self.folds(node, descriptor, unknown)
            return folds
        }
        return (finding, folds)
    }

    /// Whether a directory finds names under other spellings, as it was known last.
    func folds(_ node: NodePointer, _ descriptor: Int32, _ directory: RuledDirectory) -> Bool {
        switch node.pointee.withOwner({ $0.ruled.folding }) {
        case .nowhere: return false
        case .everywhere: return true
        case .inFlaggedDirectories:
            if directory.folds != .unknown { return directory.folds == .yes }
            let isFolding = hasFoldingFlag(descriptor)
            var found = directory
            found.folds = isFolding ? .yes : .no
            node.pointee.ruleState.store(found.rawValue, ordering: .relaxed)
            return isFolding
        }
    }

    /// Whether a directory has the flag, or might have it.
    private func hasFoldingFlag(_ descriptor: Int32) -> Bool {
        NameFolding.inFlaggedDirectories.holds(in: EmptyCollection(), below: descriptor) ?? true
    }

    /// Judges every name that a file has in a directory which finds other spellings.
    ///
    /// - Parameter finding: What the rules say of the requested spelling.
    func judgeSpellings(
        of name: UnsafePointer<CChar>, _ file: (inode: ino_t, device: dev_t), _ descriptor: Int32, _ directory: RuledDirectory,
        _ isDirectory: Bool, _ finding: ScopeRules.Finding, _ rules: ScopeRules
    ) -> ScopeRules.Finding {
        let opened = clinux_reopen(descriptor, O_RDONLY | O_DIRECTORY)
        if opened < 0 { return .hidden }
        defer { _ = clinux_close(opened) }
        var stream = DirectoryStream()
        var (isExact, found): (Bool, ScopeRules.Finding?) = (false, nil)
        let error = stream.forEach(in: opened) { entry in
            guard entry.inode == file.inode else { return true }
            if strcmp(entry.name, name) == 0 {
                isExact = true
                return false
            }
            let finding = rules.judge(entry.name, in: directory.state, isDirectory: isDirectory, folds: true)
            found = found?.merged(with: finding) ?? finding
            return true
        }
        if error != 0 { return .hidden }
        return isExact ? finding : found ?? .hidden
    }
}
