import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Operations that make, remove and rename names in a grant with rules.
extension ViewFS {
    /// A name in a directory, with the directory's descriptor, and who changes it.
    typealias RuledName = (directory: Directory, descriptor: Int32, text: UnsafePointer<CChar>, caller: Caller)

    /// Makes a name by `body` if the rules permit it. Returns the result of `body`, or an error.
    ///
    /// `type`: S_IFMT of the file.
    ///
    /// While a name is made, no directory is renamed. So the name cannot become a hidden one.
    @inline(__always)
    func making(_ name: RuledName, _ type: mode_t, _ body: () -> Int32) -> Int32 {
        if !name.directory.node.pointee.withOwner({ $0.ruled.hasRules }) { return body() }
        return makingRuled(name, type, body)
    }

    @inline(never)
    private func makingRuled(_ name: RuledName, _ type: mode_t, _ body: () -> Int32) -> Int32 {
        name.directory.node.pointee.withOwner { owner in
            owner.ruled.names.share {
                owner.ruled.withRules { rules in
                    let error = refusal(ofMaking: name, type, rules)
                    if error != 0 { return refused(name, error) }
                    return owner.ruled.isCurrent(rules) ? body() : -EACCES
                } ?? body()
            }
        }
    }

    /// Removes a name by `body` if the rules permit it.
    @inline(__always)
    func removing(_ name: RuledName, _ body: () -> Int32) -> Int32 {
        if !name.directory.node.pointee.withOwner({ $0.ruled.hasRules }) { return body() }
        return removingRuled(name, body)
    }

    @inline(never)
    private func removingRuled(_ name: RuledName, _ body: () -> Int32) -> Int32 {
        name.directory.node.pointee.withOwner { owner in
            owner.ruled.withRules { rules in
                let (error, found) = refusal(ofRemoving: name, rules)
                if error != 0 { return refused(name, error) }
                let result = owner.ruled.isCurrent(rules) ? body() : -EACCES
                guard result == -ENOTEMPTY, let found, rules.protects else { return result }
                // The directory cannot be removed because of something protected.
                let comparison = SubtreeComparison(self, owner, rules)
                return comparison.findsProtected(name.text, in: name.descriptor, found.state) ? refused(name, -EROFS) : result
            } ?? body()
        }
    }

    private func refused(_ name: RuledName, _ error: Int32) -> Int32 {
        countRefusal(of: name.text, in: name.directory, for: name.caller)
        return error
    }

    // MARK: names

    /// The error of making a name, or 0. An existing entry of that name counts as well.
    ///
    /// `type`: S_IFMT of the file. A symbolic link may not stand for a directory of a pattern.
    private func refusal(ofMaking name: RuledName, _ type: mode_t, _ rules: ScopeRules) -> Int32 {
        let isDirectory = type == S_IFDIR
        guard let directory = ruleState(of: name.directory, name.descriptor, rules) else { return -EACCES }
        let folds = folds(name.text, in: name.directory.node, name.descriptor, directory, rules)
        let finding = rules.judge(name.text, in: directory.state, isDirectory: isDirectory, folds: folds)
        if finding.isHidden { return -EACCES }
        if finding.isProtected { return -EROFS }
        if type == S_IFLNK {
            let further = rules.leadsFurther(name.text, in: directory.state, folds: folds)
            if further.protect || further.hide { return further.protect ? -EROFS : -EACCES }
        }
        let (error, _) = refusal(ofRemoving: name, rules)
        // A name that is hidden in another form of the entry.
        return error == -ENOENT ? -EACCES : error
    }

    /// The error of removing a name, or 0, and what the rules say of an existing entry.
    private func refusal(ofRemoving name: RuledName, _ rules: ScopeRules) -> (error: Int32, found: ScopeRules.Finding?) {
        guard let directory = ruleState(of: name.directory, name.descriptor, rules) else { return (-EACCES, nil) }
        var status = FileStatus()
        guard clinux_statx(name.descriptor, name.text, &status) == 0 else { return (0, nil) }
        let isDirectory = status.st.st_mode & S_IFMT == S_IFDIR
        let folds = folds(name.text, in: name.directory.node, name.descriptor, directory, rules)
        var finding = rules.judge(name.text, in: directory.state, isDirectory: isDirectory, folds: folds)
        if folds {
            let file = (status.st.st_ino, status.st.st_dev)
            finding = judgeSpellings(of: name.text, file, name.descriptor, directory, isDirectory, finding, rules)
        }
        if finding.isHidden { return (-ENOENT, finding) }
        if finding.isProtected || isProtected(NodeKey(status), name.directory.node) { return (-EROFS, finding) }
        return (0, finding)
    }

    /// Whether a known file is protected by another one of its names.
    private func isProtected(_ key: NodeKey, _ directory: NodePointer) -> Bool {
        guard let id = directory.pointee.withOwner({ tree.find(key, in: $0) }), let node = tree.nodes.find(id) else { return false }
        return node.pointee.containment.load(ordering: .sequentiallyConsistent) & Containment.protecting != 0
    }

    // MARK: renames

    /// Renames by `body` if the rules permit it.
    ///
    /// A directory is renamed only if the rules say the same of everything below it before and
    /// afterwards, and protect nothing of it. `undo` renames it back, if another mount has changed
    /// something below it meanwhile.
    @inline(__always)
    func renaming(_ from: RuledName, _ to: RuledName, isExchange: Bool, _ body: () -> Int32, undo: () -> Int32) -> Int32 {
        if !from.directory.node.pointee.withOwner({ $0.ruled.hasRules }) { return body() }
        return renamingRuled(from, to, isExchange: isExchange, body, undo)
    }

    @inline(never)
    private func renamingRuled(
        _ from: RuledName, _ to: RuledName, isExchange: Bool, _ body: () -> Int32, _ undo: () -> Int32
    ) -> Int32 {
        from.directory.node.pointee.withOwner { owner in
            if !isDirectory(from), !isExchange || !isDirectory(to),
                let result = owner.ruled.names.share({ rename(from, to, isExchange: isExchange, isAlone: false, owner, body, undo) })
            {
                return result
            }
            return owner.ruled.names.exclude { rename(from, to, isExchange: isExchange, isAlone: true, owner, body, undo) } ?? -EAGAIN
        }
    }

    private func isDirectory(_ name: RuledName) -> Bool { type(of: name) == S_IFDIR }

    /// S_IFMT of an entry, or 0.
    private func type(of name: RuledName) -> mode_t {
        var status = FileStatus()
        return clinux_statx(name.descriptor, name.text, &status) == 0 ? status.st.st_mode & S_IFMT : 0
    }

    /// Returns nil if it concerns a directory and `isAlone` is false: the entries may be replaced
    /// before the lock is held.
    private func rename(
        _ from: RuledName, _ to: RuledName, isExchange: Bool, isAlone: Bool, _ owner: ScopeNodes, _ body: () -> Int32, _ undo: () -> Int32
    ) -> Int32? {
        let areDirectories = (from: isDirectory(from), to: isExchange && isDirectory(to))
        if areDirectories.from || areDirectories.to, !isAlone { return nil }
        return owner.ruled.withRules { rename(from, to, isExchange: isExchange, areDirectories, owner, $0, body, undo) } ?? body()
    }

    private func rename(
        _ from: RuledName, _ to: RuledName, isExchange: Bool, _ areDirectories: (from: Bool, to: Bool), _ owner: ScopeNodes,
        _ rules: ScopeRules, _ body: () -> Int32, _ undo: () -> Int32
    ) -> Int32 {
        let (removal, source) = refusal(ofRemoving: from, rules)
        if removal != 0 { return refused(from, removal) }
        // The states that directories have now, by the names that they really have.
        let target = areDirectories.to ? refusal(ofRemoving: to, rules).found : nil
        let making = refusal(ofMaking: to, areDirectories.from ? S_IFDIR : type(of: from), rules)
        if making != 0 { return refused(to, making) }
        if isExchange {
            let making = refusal(ofMaking: from, areDirectories.to ? S_IFDIR : type(of: to), rules)
            if making != 0 { return refused(from, making) }
        }
        var moved: [(place: RuledName, before: UInt32, after: UInt32)] = []
        for (old, new, found, isDirectory) in [(from, to, source, areDirectories.from), (to, from, target, areDirectories.to)]
        where isDirectory {
            guard let before = found?.state, let after = state(named: new, rules) else { return -EACCES }
            moved.append((new, before, after))
            let error = SubtreeComparison(self, owner, rules).compare(old.text, in: old.descriptor, before, after)
            if error != 0 { return refused(old, error) }
        }
        // A change of the rules does not wait for ever, and this call was answered meanwhile.
        if !owner.ruled.isCurrent(rules) { return -EACCES }
        let result = body()
        if result != 0 { return result }
        if moved.contains(where: { $0.before != $0.after }) { owner.ruled.countRename() }
        // Another daemon's mount of the directory does not know this lock.
        for (place, before, after) in moved {
            let error = SubtreeComparison(self, owner, rules).compare(place.text, in: place.descriptor, before, after)
            if error == 0 { continue }
            _ = undo()
            owner.ruled.countRename()
            return error
        }
        return 0
    }

    /// The state that a directory has under a new name.
    private func state(named name: RuledName, _ rules: ScopeRules) -> UInt32? {
        guard let directory = ruleState(of: name.directory, name.descriptor, rules) else { return nil }
        let folds = folds(name.text, in: name.directory.node, name.descriptor, directory, rules)
        let finding = rules.judge(name.text, in: directory.state, isDirectory: true, folds: folds)
        return finding.isHidden ? nil : finding.state
    }
}
