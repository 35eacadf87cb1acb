import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Leaves hidden names out of one part of a directory's listing.
struct ListingFilter {
    private let view: ViewFS
    private let node: NodePointer
    private let rules: ScopeRules?
    private let directory: RuledDirectory?
    private let descriptor: Int32

    /// - Parameter descriptor: The open directory.
    init(_ view: ViewFS, _ directory: ViewFS.Directory, _ descriptor: Int32) {
        (self.view, node, self.descriptor) = (view, directory.node, descriptor)
        rules = directory.node.pointee.withOwner { $0.ruled.current }
        var found = rules.flatMap { view.ruleState(of: directory, descriptor, $0) }
        if let known = found { found?.folds = view.folds(directory.node, descriptor, known) ? .yes : .no }
        self.directory = found
    }

    /// Whether the directory itself is hidden.
    var isHidden: Bool { rules != nil && directory == nil }

    func hides(_ entry: DirectoryStream.Entry) -> Bool {
        guard let rules, let directory, !isDots(entry.name) else { return false }
        var isDirectory = entry.type == UInt8(DT_DIR)
        if entry.type == UInt8(DT_UNKNOWN) {
            var status = FileStatus()
            isDirectory = clinux_statx(descriptor, entry.name, &status) == 0 && status.st.st_mode & S_IFMT == S_IFDIR
        }
        return view.judge(entry.name, in: node, descriptor, directory, isDirectory: isDirectory, rules).finding.isHidden
    }
}
