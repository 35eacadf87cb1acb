import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

// Changes the rules of a live scope: a withdrawal of the files that the new rules hide or protect.
extension ViewFS {
    /// The rules of a scope.
    public func rules(of scope: Scope) -> GrantRules { scope.nodes.ruled.current?.rules ?? .none }

    /// Puts other rules into effect for operations that begin from now on.
    ///
    /// Known files are judged before the next operation on each. Call `finishRules` next. Never
    /// waits.
    public func setRules(_ rules: GrantRules, of scope: Scope) {
        // A scope without rules does not doubt its files, and has none to refuse.
        let hadRules = scope.nodes.ruled.hasRules
        scope.nodes.ruled.set(rules)
        if hadRules || !rules.isEmpty { tree.doubt(scope.nodes) }
    }

    /// Carries a change of rules out, and returns its outcome.
    ///
    /// Afterwards no operation runs that the new rules refuse, and the kernel caches nothing of
    /// hidden files.
    ///
    /// Locking: the scope's `closing` lock. Called by a thread that serves no requests.
    ///
    /// - Parameter patience: Milliseconds to wait for operations inside.
    public func finishRules(of scope: Scope, patience: Int) -> WithdrawalOutcome {
        scope.closing.withLock { _ in
            let began = Clock.monotonic
            var outcome = WithdrawalOutcome()
            guard !scope.isClosed.load(ordering: .acquiring), let notifier = session?.notifier else { return .done }
            let rules = scope.nodes.ruled.last
            let stuck = awaitOperations(in: scope, patience: patience, &outcome)
            let late = LateReplies(self, scope, notifier)
            let change = RuleChange(view: self, scope: scope.nodes)
            let isInvalidated = change.carryOut(&outcome)
            change.invalidateListings()
            late.add(change.unknown(notifier))
            wait(upTo: WithdrawalRest.microseconds) { late.poll() }
            outcome.isConfirmed = isInvalidated && late.poll()
            outcome.pending = UInt64(truncatingIfNeeded: stuck.filter { coordinator.isInside($0) }.count)
            if outcome.pending == 0, let rules { scope.nodes.ruled.drop(before: rules) }
            outcome.milliseconds = Double(Clock.monotonic - began) / 1e6
            return outcome
        }
    }

    /// Waits for operations that began with the former rules. Those that stay get EACCES.
    private func awaitOperations(in scope: Scope, patience: Int, _ outcome: inout WithdrawalOutcome) -> [Coordinator.Occupant] {
        var inside = coordinator.occupants(of: scope.id)
        let visited = inside.count
        wait(upTo: patience * 1_000) {
            inside.removeAll { !coordinator.isInside($0) }
            return inside.isEmpty
        }
        for occupant in inside where occupant.entry != .cacheWrite { release(occupant, .all) }
        outcome.drained = UInt64(clamping: visited - inside.count)
        return inside
    }

    /// Lists a directory anew. `body` gets the listed descriptor and an entry, and returns whether to go on.
    func forEachEntry(of descriptor: Int32, _ body: (Int32, borrowing DirectoryStream.Entry) -> Bool) {
        let opened = clinux_reopen(descriptor, O_RDONLY | O_DIRECTORY)
        if opened < 0 { return }
        defer { _ = clinux_close(opened) }
        var stream = DirectoryStream()
        _ = stream.forEach(in: opened) { body(opened, $0) }
    }
}

/// Judges every known file of a scope by its new rules.
///
/// Belongs to one thread, which may block on the scope's filesystem.
final class RuleChange {
    private let view: ViewFS
    private let scope: ScopeNodes
    private let departure: Departure
    private var (gone, isDirectoryGone) = (Set<UInt64>(), false)
    /// The visible files that may have several names, with their inodes, and those of them that are
    /// protected by one.
    private var linked: [UInt64: UInt64] = [:]
    private var protectedByName = Set<UInt64>()
    /// The files whose protection this thread carries out, and those that other threads protect.
    private var (claimed, protectedByOthers) = (Set<UInt64>(), Set<UInt64>())
    /// Hidden names of files that stay.
    private var hiddenNames: [(directory: UInt64, name: [CChar])] = []

    init(view: ViewFS, scope: ScopeNodes) {
        (self.view, self.scope) = (view, scope)
        departure = Departure(view: view, scope: scope)
    }

    /// Refuses hidden files and changes of protected ones. Returns whether nothing hidden is cached.
    func carryOut(_ outcome: inout WithdrawalOutcome) -> Bool {
        InjectedFault.stop(at: "rules")
        let ids = scope.ids
        judge(ids)
        // Lookups that began with the former rules have added these. Those that come now were found by the new rules, and
        // programs may add them faster than they are judged.
        let seen = NodeMarks(ids)
        judge(scope.ids.filter { !seen.contains($0) })
        judgeOtherNames()
        departure.refuse(Containment.escaping, gone)
        if !claimed.isEmpty { departure.protect(claimed) }
        outcome.invalidatedInodes = UInt64(truncatingIfNeeded: gone.count + claimed.count)
        let isInvalidated = gone.isEmpty || departure.invalidate(gone)
        return awaitProtection(of: protectedByOthers) && isInvalidated
    }

    /// Judges the other names of files with several ones, in all known directories.
    ///
    /// Hidden names are looked up again. A file is protected if one of its names is.
    private func judgeOtherNames() {
        guard !linked.isEmpty, let rules = scope.ruled.last else { return }
        let inodes = Set(linked.values)
        for id in scope.ids where !rules.rules.isEmpty && view.isDirectory(id) && !gone.contains(id) {
            _ = view.tree.withLive(id, in: scope) { node in
                let descriptor = view.tree.pin(node)
                defer { view.tree.unpin(id, node) }
                guard descriptor >= 0, let directory = view.ruleState(of: (NodeID(id), node), descriptor, rules) else { return }
                judgeNames(of: inodes, in: id, descriptor, (directory.state, view.folds(node, descriptor, directory)), rules)
            }
        }
        for id in linked.keys where !gone.contains(id) {
            _ = view.tree.withLive(id, in: scope) {
                setProtection(protectedByName.contains(id), of: id, $0, isOnlyName: true)
            }
        }
    }

    private func judgeNames(
        of inodes: Set<UInt64>, in directory: UInt64, _ descriptor: Int32, _ place: (state: UInt32, folds: Bool), _ rules: ScopeRules
    ) {
        view.forEachEntry(of: descriptor) { opened, entry in
            guard inodes.contains(entry.inode) else { return true }
            let finding = rules.judge(entry.name, in: place.state, isDirectory: false, folds: place.folds)
            var status = FileStatus()
            guard finding.isHidden || finding.isProtected, clinux_statx(opened, entry.name, &status) == 0,
                let id = view.tree.find(NodeKey(status), in: scope)
            else { return true }
            if finding.isHidden {
                hiddenNames.append((directory, Array(UnsafeBufferPointer(start: entry.name, count: strlen(entry.name) + 1))))
            } else {
                protectedByName.insert(id)
            }
            return true
        }
    }

    private func judge(_ ids: [UInt64]) {
        guard let rules = scope.ruled.last, let top = scope.root?.id else { return }
        var root = view.path(of: scope).map { $0.map(CChar.init(bitPattern:)) } ?? []
        if root.count >= Int(CLINUX_PATH_BYTES) { root = [] }
        var buffer = PathBuffer()
        let (directories, files) = parted(ids)
        for id in directories where id != top { judge(id, rules, root, &buffer) }
        let judged = judgeListed(directories, files, rules)
        for id in files where id != top && !judged.contains(id) { judge(id, rules, root, &buffer) }
        // Each path was cut where that of the granted directory ends.
        if !root.isEmpty, view.path(of: scope).map({ $0.map(CChar.init(bitPattern:)) }) != root {
            for id in ids where id != top && !gone.contains(id) { judge(id, rules, [], &buffer) }
        }
    }

    private func parted(_ ids: [UInt64]) -> (directories: [UInt64], files: [UInt64]) {
        var files: [UInt64] = []
        files.reserveCapacity(ids.count)
        var directories: [UInt64] = []
        for id in ids { if view.isDirectory(id) { directories.append(id) } else { files.append(id) } }
        return (directories, files)
    }

    /// Judges files by listing their directories, which takes less time than finding each file's path.
    ///
    /// Returns those that are visible and have one name. A second thread helps.
    private func judgeListed(_ directories: [UInt64], _ files: [UInt64], _ rules: ScopeRules) -> NodeMarks {
        let listing = RuleListing(view, scope, rules, directories.filter { !gone.contains($0) }, files)
        listing.carryOut()
        var judged = NodeMarks(listing.settled)
        for file in listing.others {
            judged.insert(file.id)
            _ = view.tree.withLive(file.id, in: scope) { node in
                if node.pointee.containment.load(ordering: .relaxed) & Containment.escaped != 0 { return }
                setProtection(file.isProtected, of: file.id, node, isOnlyName: true)
                view.tree.settle(node, since: file.moment)
            }
        }
        return judged
    }

    private func judge(_ id: UInt64, _ rules: ScopeRules, _ root: [CChar], _ buffer: inout PathBuffer) {
        var finding: ScopeRules.Finding?
        var isLeaving = false
        let isJudged = view.tree.withLive(id, in: scope) { node -> Bool in
            if node.pointee.containment.load(ordering: .relaxed) & Containment.escaped != 0 {
                // Another thread has refused it, and may not have invalidated it yet.
                isLeaving = !node.pointee.isForgotten.load(ordering: .acquiring)
                return true
            }
            let generation = scope.ruled.generation.load(ordering: .sequentiallyConsistent)
            let moment = scope.doubts.load(ordering: .sequentiallyConsistent)
            let descriptor = view.tree.pin(node)
            defer { view.tree.unpin(id, node) }
            let isDirectory = node.pointee.type == S_IFDIR
            if descriptor >= 0, !root.isEmpty, let top = view.tree.rootDescriptor(of: scope) {
                finding = buffer.judge(
                    descriptor, below: top, under: root, rules, scope.ruled.folding, isDirectory: isDirectory)
            }
            guard let finding else { return false }
            if finding.isHidden { return false }
            if isDirectory { view.note(RuledDirectory(generation: generation, serial: rules.serial, state: finding.state), of: node) }
            let isOnlyName = isDirectory || !view.hasSeveralNames(descriptor)
            if !isOnlyName {
                linked[id] = node.pointee.key.inode
                if finding.isProtected { protectedByName.insert(id) }
            }
            setProtection(finding.isProtected, of: id, node, isOnlyName: isOnlyName)
            view.tree.settle(node, since: moment)
            return true
        }
        if isLeaving { gone.insert(id) }
        // By its other names, if it has any.
        if isJudged != false { return }
        departure.depart(id, &gone, &isDirectoryGone)
        if !gone.contains(id), let inode = view.tree.nodes.find(id)?.pointee.key.inode, !view.isDirectory(id) { linked[id] = inode }
    }

    private func setProtection(_ isProtected: Bool, of id: UInt64, _ node: NodePointer, isOnlyName: Bool) {
        // Its data is not written back yet.
        if !isProtected, node.pointee.isBeingProtected, !claimed.contains(id) { _ = awaitProtection(of: [id]) }
        _ = view.setProtection(isProtected, of: id, node, isOnlyName: isOnlyName)
        if !isProtected { return }
        if node.pointee.claimProtection() {
            claimed.insert(id)
        } else if node.pointee.isBeingProtected, !claimed.contains(id) {
            protectedByOthers.insert(id)
        }
    }

    /// Waits until other threads have protected these files. Returns whether they have.
    ///
    /// An invalidation by them must not meet a program's next write. The kernel discards the attributes that it requests for
    /// the write if they are invalidated meanwhile, and takes the write without asking for permission (fs/fuse/inode.c,
    /// fuse_change_attributes_i).
    private func awaitProtection(of files: Set<UInt64>) -> Bool {
        let isUnderWay = { [view, scope] (id: UInt64) in view.tree.withLive(id, in: scope) { $0.pointee.isBeingProtected } ?? false }
        view.wait(upTo: Self.othersMicroseconds) { !files.contains(where: isUnderWay) }
        return !files.contains(where: isUnderWay)
    }

    private static let othersMicroseconds = 1_000_000

    /// Makes the kernel list directories and look up hidden names again.
    func invalidateListings() {
        guard let notifier = view.session?.notifier else { return }
        let notifications = BlockingNotifications(view)
        for (directory, name) in hiddenNames {
            name.withUnsafeBufferPointer { notifications.expire($0.baseAddress!, in: directory, of: scope.scope) }
        }
        for id in scope.ids where view.isDirectory(id) && !gone.contains(id) {
            view.tree.nodes.find(id)?.pointee.dataVersion.store(0, ordering: .relaxed)
            _ = notifier.invalidateAttributes(NodeID(id))
            notifications.invalidateListing(of: id, in: scope.scope)
        }
        notifications.send()
        view.wait(upTo: Self.listingMicroseconds) {
            notifications.poll()
            return notifications.isDone
        }
    }

    private static let listingMicroseconds = 200_000

    /// Hidden nodes that the kernel does not know, or not yet.
    func unknown(_ notifier: Notifier) -> [UInt64] { gone.filter { notifier.invalidateAttributes(NodeID($0)) == -ENOENT } }
}
