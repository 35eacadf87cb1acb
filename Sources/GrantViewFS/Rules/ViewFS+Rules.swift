import CGrantSystem
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import Synchronization
import GrantViewTree

// Applies the rules of grants to names. A directory's node keeps the state that its path leads to,
// so a name is judged without a path. See docs/decisions/rules.md.
extension ViewFS {
    typealias Directory = (id: NodeID, node: NodePointer)

    // MARK: directories

    /// The state of a directory, or nil if it is hidden or its path is not known.
    ///
    /// - Parameter descriptor: The directory's, O_PATH or open.
    func ruleState(of directory: Directory, _ descriptor: Int32, _ rules: ScopeRules) -> RuledDirectory? {
        let node = directory.node
        for _ in 0..<Self.attempts {
            let generation = node.pointee.withOwner { $0.ruled.generation.load(ordering: .sequentiallyConsistent) }
            let known = RuledDirectory(rawValue: node.pointee.ruleState.load(ordering: .relaxed))
            if known.generation == generation, known.serial == rules.serial { return known }
            guard let root = node.pointee.withOwner({ tree.rootDescriptor(of: $0) }) else { return nil }
            var buffer = PathBuffer()
            let folding = node.pointee.withOwner { $0.ruled.folding }
            guard let finding = buffer.judge(descriptor, below: root, rules, folding, isDirectory: true), !finding.isHidden else {
                return nil
            }
            note(RuledDirectory(generation: generation, serial: rules.serial, state: finding.state), of: node)
        }
        return nil
    }

    private static let attempts = 8

    /// Records the state of a directory. What is known of its spellings stays in one generation.
    func note(_ found: RuledDirectory, of node: NodePointer) {
        var found = found
        let known = RuledDirectory(rawValue: node.pointee.ruleState.load(ordering: .relaxed))
        if known.generation == found.generation { found.folds = known.folds }
        if known.serial == found.serial, known.generation != 0, known.state != found.state { listAgain(node) }
        node.pointee.ruleState.store(found.rawValue, ordering: .relaxed)
    }

    /// Makes the kernel list a directory again: other names are visible in it.
    @inline(never)
    private func listAgain(_ node: NodePointer) {
        node.pointee.dataVersion.store(0, ordering: .relaxed)
        guard keepsContents, let id = node.pointee.withOwner({ tree.find(node.pointee.key, in: $0) }) else { return }
        departures.suspect(id, in: node.pointee.scope)
    }

    // MARK: found names

    /// Judges the name by which a file was found.
    ///
    /// Returns nil if the scope has no rules.
    @inline(__always)
    func judge(
        _ name: UnsafePointer<CChar>?, _ status: borrowing FileStatus, in parent: Directory, _ origin: NameOrigin
    ) -> FoundName? {
        // A file of another type may have taken the place of the listed one.
        if case .listed(let judged?) = origin, judged.isDirectory == (status.st.st_mode & S_IFMT == S_IFDIR) { return judged }
        guard let name, parent.node.pointee.withOwner({ $0.ruled.hasRules }) else { return nil }
        return judgeFound(name, status, in: parent, origin)
    }

    /// Where a name comes from.
    enum NameOrigin {
        case requested
        /// From the directory itself, so this is the spelling that it has. The rules may have judged it then.
        case listed(FoundName?)
    }

    /// What the rules said of a name when its file was found.
    struct FoundName {
        let finding: ScopeRules.Finding
        let isDirectory: Bool
        /// Of the scope, before the name was judged.
        let generation: UInt32
        let serial: UInt32
    }

    @inline(never)
    private func judgeFound(
        _ name: UnsafePointer<CChar>, _ status: borrowing FileStatus, in parent: Directory, _ origin: NameOrigin
    ) -> FoundName? {
        let (inode, device) = (status.st.st_ino, status.st.st_dev)
        let isDirectory = status.st.st_mode & S_IFMT == S_IFDIR
        let descriptor = tree.pin(parent.node)
        defer { tree.unpin(parent.id.rawValue, parent.node) }
        return parent.node.pointee.withOwner { owner in
            let generation = owner.ruled.generation.load(ordering: .sequentiallyConsistent)
            return owner.ruled.withRules { rules in
                let hidden = FoundName(finding: .hidden, isDirectory: isDirectory, generation: generation, serial: rules.serial)
                guard descriptor >= 0, let directory = ruleState(of: parent, descriptor, rules) else { return hidden }
                var (finding, folds) = judge(name, in: parent.node, descriptor, directory, isDirectory: isDirectory, rules)
                if folds, !finding.isHidden, case .requested = origin {
                    finding = judgeSpellings(of: name, (inode, device), descriptor, directory, isDirectory, finding, rules)
                }
                return FoundName(finding: finding, isDirectory: isDirectory, generation: generation, serial: rules.serial)
            }
        }
    }

    /// Records on a node what the rules said of its name.
    func apply(_ found: FoundName, to id: UInt64, _ node: NodePointer, links: nlink_t) {
        let isDirectory = node.pointee.type == S_IFDIR
        if isDirectory {
            note(RuledDirectory(generation: found.generation, serial: found.serial, state: found.finding.state), of: node)
        }
        setProtectionSoon(found.finding.isProtected, of: id, node, isOnlyName: isDirectory || links <= 1)
        // The rules have changed meanwhile, or a directory was renamed.
        if node.pointee.withOwner({ $0.ruled.generation.load(ordering: .sequentiallyConsistent) }) != found.generation {
            departures.lookAgain(at: id, node)
        }
    }

    /// Protects a file, or permits changes if this is its only name.
    ///
    /// Returns whether the file may have unwritten data. `Departure.protect` completes its protection then.
    func setProtection(_ isProtected: Bool, of id: UInt64, _ node: NodePointer, isOnlyName: Bool) -> Bool {
        let bits = node.pointee.containment.load(ordering: .sequentiallyConsistent) & Containment.protected
        if isProtected {
            if bits == Containment.protected { return false }
            // In this order: a write that begins meanwhile either sees the refusal, or has marked the node.
            node.pointee.containment.bitwiseOr(Containment.protecting, ordering: .sequentiallyConsistent)
            refuseOpen(Containment.protecting, of: id, node)
            if node.pointee.type == S_IFREG, mayBeDirty(node) { return true }
            node.pointee.completeProtection()
            refuseOpen(Containment.protected, of: id, node)
        } else if bits != 0, isOnlyName {
            node.pointee.containment.bitwiseAnd(~Containment.protected, ordering: .sequentiallyConsistent)
            files.permit(Containment.protected) { $0 == id }
            directories.permit(Containment.protected) { $0 == id }
            droppedWrites.forget(id, in: node.pointee.scope)
        }
        return false
    }

    /// Does the same, and lets another thread complete the protection.
    private func setProtectionSoon(_ isProtected: Bool, of id: UInt64, _ node: NodePointer, isOnlyName: Bool) {
        if setProtection(isProtected, of: id, node, isOnlyName: isOnlyName), !node.pointee.isBeingProtected {
            departures.suspect(id, in: node.pointee.scope)
        }
    }

    /// Sets bits on the open files or directories of a node. Its own are set already.
    private func refuseOpen(_ containment: UInt8, of id: UInt64, _ node: NodePointer) {
        guard node.pointee.openers.load(ordering: .sequentiallyConsistent) > 0 || node.pointee.hasCachedOpens else { return }
        if node.pointee.type == S_IFDIR {
            directories.refuse(containment) { $0 == id }
        } else {
            files.refuse(containment) { $0 == id }
        }
    }

    // MARK: places

    /// Whether an open file lies below `root`: 1 or 0, or a negative error number if it is unknown.
    ///
    /// A file with a hidden name lies elsewhere. If the scope has rules, records what they say of
    /// the file, unless `id` is nil. Never blocks.
    func place(of descriptor: Int32, below root: Int32, _ node: NodePointer, id: UInt64?) -> Int32 {
        guard let rules = node.pointee.withOwner({ $0.ruled.current }) else { return clinux_lies_below(root, descriptor) }
        let (generation, moment) = node.pointee.withOwner { owner in
            (owner.ruled.generation.load(ordering: .sequentiallyConsistent), owner.doubts.load(ordering: .sequentiallyConsistent))
        }
        var buffer = PathBuffer()
        let isDirectory = node.pointee.type == S_IFDIR
        let folding = node.pointee.withOwner { $0.ruled.folding }
        guard let finding = buffer.judge(descriptor, below: root, rules, folding, isDirectory: isDirectory) else {
            return buffer.error == -EXDEV ? 0 : buffer.error
        }
        if finding.isHidden { return 0 }
        let wasProtected = node.pointee.containment.load(ordering: .relaxed) & Containment.protecting != 0
        guard let id else { return finding.isProtected && !wasProtected ? 0 : 1 }
        if isDirectory { note(RuledDirectory(generation: generation, serial: rules.serial, state: finding.state), of: node) }
        if finding.isProtected || wasProtected {
            setProtectionSoon(finding.isProtected, of: id, node, isOnlyName: isDirectory || !hasSeveralNames(descriptor))
            // The path may have changed before this was set.
            if node.pointee.withOwner({ $0.doubts.load(ordering: .sequentiallyConsistent) }) != moment { _ = tree.doubt(node) }
        }
        return 1
    }

    /// Whether the rules may say something else of files below a directory that was renamed.
    func mayChangeRules(below id: UInt64, in scope: ScopeNodes) -> Bool {
        guard isDirectory(id), let rules = scope.ruled.current else { return false }
        return rules.hasSeveralStates
    }

    func hasSeveralNames(_ descriptor: Int32) -> Bool {
        var status = FileStatus()
        return clinux_statx(descriptor, nil, &status) != 0 || status.st.st_nlink > 1
    }
}

/// Judges the paths of open files.
struct PathBuffer: ~Copyable {
    private let bytes = UnsafeMutableBufferPointer<CChar>.allocate(capacity: Int(CLINUX_PATH_BYTES))
    /// Why the last path was not judged. -EXDEV if the file lies elsewhere.
    private(set) var error: Int32 = 0

    deinit { bytes.deallocate() }

    /// Judges a file below an open directory. Returns nil if it lies elsewhere or has no known path.
    mutating func judge(
        _ descriptor: Int32, below root: Int32, _ rules: ScopeRules, _ folding: NameFolding, isDirectory: Bool
    ) -> ScopeRules.Finding? {
        var offset = 0
        let count = clinux_place_below(root, descriptor, bytes.baseAddress!, &offset)
        return judge(count, offset, descriptor, below: root, rules, folding, isDirectory)
    }

    /// Does the same if the path of the open directory is known.
    mutating func judge(
        _ descriptor: Int32, below root: Int32, under top: [CChar], _ rules: ScopeRules, _ folding: NameFolding, isDirectory: Bool
    ) -> ScopeRules.Finding? {
        var offset = 0
        let count = clinux_place_under(top, top.count, descriptor, bytes.baseAddress!, &offset)
        return judge(count, offset, descriptor, below: root, rules, folding, isDirectory)
    }

    private mutating func judge(
        _ count: Int, _ offset: Int, _ descriptor: Int32, below root: Int32, _ rules: ScopeRules, _ folding: NameFolding,
        _ isDirectory: Bool
    ) -> ScopeRules.Finding? {
        if count < 0 {
            error = Int32(truncatingIfNeeded: count)
            return nil
        }
        var path = UnsafeRawBufferPointer(bytes)[offset..<offset + count]
        if path.suffix(Self.removed.count).elementsEqual(Self.removed) {
            // A name may end like this. Of a file with more names another check decides.
            var status = FileStatus()
            let isKnown = clinux_statx(descriptor, nil, &status) == 0
            if !isKnown || (status.st.st_nlink > 0 && !isDirectory) {
                error = -ENOENT
                return nil
            }
            if status.st.st_nlink == 0 { path = path.dropLast(Self.removed.count) }
        }
        return UnsafeRawBufferPointer(rebasing: path).withMemoryRebound(to: UInt8.self) { path in
            rules.judge(path: path, isDirectory: isDirectory, folding) { folding.holds(in: path.prefix($0), below: root) }
        }
    }

    /// The kernel's word behind the path of a removed file.
    private static let removed = Array(" (deleted)".utf8)
}
