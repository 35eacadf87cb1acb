import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree
import Synchronization

/// Judges the known files of directories by the names that a listing has.
///
/// Two threads share the directories, because the holders of a grant wait for a change of rules.
///
/// Locking: its own, rank 2, held for a moment.
final class RuleListing: Sendable {
    /// A file that is protected, or was before.
    struct Other {
        let id: UInt64
        let isProtected: Bool
        /// The doubts of the scope, before the name was read.
        let moment: UInt64
    }

    private struct State {
        var settled: [UInt64] = []
        var others: [Other] = []
        /// How many directories are finished.
        var finished = 0
    }

    private let view: ViewFS
    private let scope: ScopeNodes
    private let rules: ScopeRules
    private let directories: [(id: UInt64, files: Int)]
    private let inodes: InodeFilter
    private let next = Atomic<Int>(0)
    private let state = Lock(State())
    private let isDone = Semaphore()

    /// `files`: known ones, also of other directories.
    init(_ view: ViewFS, _ scope: ScopeNodes, _ rules: ScopeRules, _ directories: [UInt64], _ files: [UInt64]) {
        (self.view, self.scope, self.rules) = (view, scope, rules)
        var inodes = InodeFilter(count: files.count)
        var counts: [UInt64: Int] = [:]
        for id in files {
            guard let node = view.tree.nodes.find(id) else { continue }
            inodes.insert(node.pointee.key.inode)
            counts[node.pointee.parent.load(ordering: .relaxed), default: 0] += 1
        }
        self.inodes = inodes
        self.directories = directories.compactMap { id in
            counts[id].flatMap { $0 < Self.fewest ? nil : (id, $0) }
        }
    }

    /// Visible files with one name that are neither protected nor were so. They are settled.
    var settled: [UInt64] { state.withLock { $0.settled } }

    /// The other visible files with one name.
    var others: [Other] { state.withLock { $0.others } }

    func carryOut() {
        if directories.isEmpty { return }
        if directories.count > 1 { _ = BackgroundTask(mayHang: true) { [self] in work() } }
        work()
        // The other thread may not have begun. Then it finds nothing to do.
        isDone.wait()
    }

    private func work() {
        while true {
            let number = next.wrappingAdd(1, ordering: .relaxed).oldValue
            guard number < directories.count else { return }
            let (settled, others) = judge(directories[number].id, directories[number].files)
            let isLast = state.withLock { state -> Bool in
                state.settled += settled
                state.others += others
                state.finished += 1
                return state.finished == directories.count
            }
            if isLast { isDone.post() }
        }
    }

    private func judge(_ id: UInt64, _ files: Int) -> (settled: [UInt64], others: [Other]) {
        var (settled, others): ([UInt64], [Other]) = ([], [])
        settled.reserveCapacity(files)
        _ = view.tree.withLive(id, in: scope) { node in
            let descriptor = view.tree.pin(node)
            defer { view.tree.unpin(id, node) }
            guard descriptor >= 0, let directory = view.ruleState(of: (NodeID(id), node), descriptor, rules) else { return }
            judge((descriptor, directory.state, view.folds(node, descriptor, directory)), files, &settled, &others)
        }
        return (settled, others)
    }

    private func judge(
        _ directory: (descriptor: Int32, state: UInt32, folds: Bool), _ files: Int, _ settled: inout [UInt64],
        _ others: inout [Other]
    ) {
        let moment = scope.doubts.load(ordering: .sequentiallyConsistent)
        var own = FileStatus()
        guard clinux_statx(directory.descriptor, nil, &own) == 0 else { return }
        var left = files * Self.mostUnknown
        view.forEachEntry(of: directory.descriptor) { opened, entry in
            left -= 1
            var status = FileStatus()
            guard inodes.mayContain(entry.inode), clinux_statx(opened, entry.name, &status) == 0, status.st.st_nlink == 1 else {
                return left > 0
            }
            // Another file is mounted here. Its own name decides.
            if status.st.st_ino != entry.inode || status.st.st_dev != own.st.st_dev { return left > 0 }
            let finding = rules.judge(entry.name, in: directory.state, isDirectory: false, folds: directory.folds)
            if finding.isHidden { return true }
            view.tree.withLive(NodeKey(status), in: scope) { id, node in
                let containment = node.pointee.containment.load(ordering: .sequentiallyConsistent)
                if node.pointee.type == S_IFDIR || containment & Containment.escaped != 0 { return }
                if finding.isProtected || containment & (Containment.protected | Containment.isBeingProtected) != 0 {
                    others.append(Other(id: id, isProtected: finding.isProtected, moment: moment))
                } else {
                    view.tree.settle(node, since: moment)
                    settled.append(id)
                }
            }
            return true
        }
    }

    /// A directory with fewer known files is not listed, nor the rest of one with many unknown files for each known one.
    private static let (fewest, mostUnknown) = (16, 8)
}

/// A set of inode numbers that may seem to contain others.
private struct InodeFilter {
    private var words: [UInt64]
    private let mask: UInt64

    init(count: Int) {
        // Eight bits each, so that one of eight others seems to be there.
        var bits = 64
        while bits < count * 8 { bits *= 2 }
        words = [UInt64](repeating: 0, count: bits / 64)
        mask = UInt64(truncatingIfNeeded: bits - 1)
    }

    private func place(of inode: UInt64) -> (word: Int, bit: UInt64) {
        let bit = (inode &* 0x9E37_79B9_7F4A_7C15) >> 20 & mask
        return (Int(truncatingIfNeeded: bit >> 6), 1 << (bit & 63))
    }

    mutating func insert(_ inode: UInt64) {
        let place = place(of: inode)
        words[place.word] |= place.bit
    }

    func mayContain(_ inode: UInt64) -> Bool {
        let place = place(of: inode)
        return words[place.word] & place.bit != 0
    }
}

/// A set of ids of nodes, by their places in the table of nodes.
struct NodeMarks {
    /// The upper half of the id at each place, or 0.
    private var generations: [UInt32] = []

    init(_ ids: [UInt64]) {
        generations = [UInt32](repeating: 0, count: ids.reduce(0) { max($0, Self.place(of: $1) + 1) })
        for id in ids { insert(id) }
    }

    private static func place(of id: UInt64) -> Int { Int(truncatingIfNeeded: UInt32(truncatingIfNeeded: id)) }

    mutating func insert(_ id: UInt64) {
        let place = Self.place(of: id)
        if place >= generations.count { generations += [UInt32](repeating: 0, count: place + 1 - generations.count) }
        generations[place] = UInt32(truncatingIfNeeded: id >> 32)
    }

    func contains(_ id: UInt64) -> Bool {
        let place = Self.place(of: id)
        return place < generations.count && generations[place] == UInt32(truncatingIfNeeded: id >> 32)
    }
}
