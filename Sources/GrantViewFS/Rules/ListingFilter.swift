import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

/// Judges the names in one part of a directory's listing.
struct ListingFilter {
    private let view: ViewFS
    private let node: NodePointer
    private let generation: UInt32
    private let rules: ScopeRules?
    private let directory: RuledDirectory?
    private let descriptor: Int32

    /// - Parameter descriptor: The open directory.
    init(_ view: ViewFS, _ directory: ViewFS.Directory, _ descriptor: Int32) {
        (self.view, node, self.descriptor) = (view, directory.node, descriptor)
        // In this order, as in `ViewFS.judgeFound`.
        generation = directory.node.pointee.withOwner { $0.ruled.generation.load(ordering: .sequentiallyConsistent) }
        rules = directory.node.pointee.withOwner { $0.ruled.current }
        var found = rules.flatMap { view.ruleState(of: directory, descriptor, $0) }
        if let known = found { found?.folds = view.folds(directory.node, descriptor, known) ? .yes : .no }
        self.directory = found
    }

    /// Whether the directory itself is hidden.
    var isHidden: Bool { rules != nil && directory == nil }

    /// Judges an entry's name. Returns nil if the scope had no rules.
    func judge(_ entry: DirectoryStream.Entry) -> ViewFS.FoundName? {
        guard let rules, let directory, !isDots(entry.name) else { return nil }
        var isDirectory = entry.type == UInt8(DT_DIR)
        if entry.type == UInt8(DT_UNKNOWN) {
            var status = FileStatus()
            isDirectory = clinux_statx(descriptor, entry.name, &status) == 0 && status.st.st_mode & S_IFMT == S_IFDIR
        }
        let finding = view.judge(entry.name, in: node, descriptor, directory, isDirectory: isDirectory, rules).finding
        return ViewFS.FoundName(finding: finding, isDirectory: isDirectory, generation: generation, serial: rules.serial)
    }
}
