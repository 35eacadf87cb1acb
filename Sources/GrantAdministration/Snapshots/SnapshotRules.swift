import GrantModel
import GrantSystem

/// The rules of a directory of a snapshot, and of granted directories inside it.
///
/// Hidden files are neither copied, nor compared, nor restored. A file is hidden if each grant that it lies in hides it.
struct SnapshotRules {
    private let program: RuleProgram
    /// Of the directory itself. The copy may be on another filesystem.
    private let tree: FoldedTree
    /// The paths of the granted directories below the copied one, as components. The copied one itself has none.
    private let roots: [[ArraySlice<UInt8>]]

    /// Returns nil if nothing is hidden.
    ///
    /// - Parameters:
    ///   - roots: Paths below the copied directory.
    ///   - directory: The copied directory, which may be O_PATH.
    init?(_ rules: GrantRules, roots: [[UInt8]], in directory: borrowing FileDescriptor) throws(Errno) {
        if rules.hide.isEmpty, rules.only.isEmpty { return nil }
        program = RuleProgram(rules)
        tree = try FoldedTree(directory)
        self.roots = roots.map { $0.split(separator: UInt8(ascii: "/")) }
    }

    /// - Parameter path: Below the copied directory.
    func hides(_ path: [UInt8], isDirectory: Bool) -> Bool {
        hides(path.split(separator: UInt8(ascii: "/")), isDirectory: isDirectory)
    }

    func hides(_ path: [ArraySlice<UInt8>], isDirectory: Bool) -> Bool {
        roots.allSatisfy { root in
            // A directory on the way to a granted one is entered.
            if root.count >= path.count { return !root.starts(with: path) }
            guard path.starts(with: root) else { return true }
            return program.judge(path: path.dropFirst(root.count), isDirectory: isDirectory) { depth in
                // What was visible in a directory that is gone, is.
                tree.folds(Array(path.prefix(root.count + depth).joined(separator: [0x2F]))) ?? false
            }.verdict.isHidden
        }
    }
}
