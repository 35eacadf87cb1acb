import CGrantSystem
import GrantFUSE
import Glibc
import GrantSystem
import Synchronization
import GrantViewTree

/// Detects files that were moved out of granted directories on the host.
///
/// The kernel still knows such files. They are removed from the grants. Suspects come from four
/// sources:
/// - reported renames (`HostChangeRelay`),
/// - operations in scopes without such reports (`ViewFS.refusal`),
/// - a scan of everything open, three times a second,
/// - a look at everything after reports were missed (`lookAgain`).
///
/// Each suspect is checked on a thread of its scope, because the scope's filesystem may hang.
///
/// Locking: its own, rank 2, held for a moment.
final class Departures: Sendable {
    private struct Suspects {
        var nodes: Set<UInt64> = []
        /// Whether a thread checks them.
        var isJudged = false
    }

    private let suspects = Lock<[UInt32: Suspects]>([:])
    private nonisolated(unsafe) weak var view: ViewFS?

    private static let pause: UInt32 = 300_000
    private static let judgementPause: UInt32 = 500
    private static let judgementTurns = 200
    /// Directories scanned per turn besides open files: at most a few hundredths of a processor.
    private static let directoriesPerTurn = 16_384
    private static let stepsPerTurn = 131_072
    /// In directories: a node in doubt is pinned.
    private static let costOfDoubt = 4
    /// Nameless open files are searched in a directory, each in one of this many turns.
    private static let turnsOfNameless: UInt64 = 16

    /// Starts the scanning thread, before the first request.
    func start(for view: ViewFS) {
        self.view = view
        // Without the thread, reported renames and operations still find suspects.
        _ = try? WorkerThread.start("grantfs-leaving") { [self] in run() }.detach()
    }

    // MARK: suspicion

    /// Checks whether a node lies in its grant, by the kernel's path alone. Never blocks.
    ///
    /// A node that is not known to lie there becomes a suspect.
    func check(at id: UInt64, in number: UInt32) {
        guard let view, let scope = view.tree.scope(number) else { return }
        if look(at: id, in: scope, of: view) != 1 { suspect(id, in: number) }
    }

    /// The result of `clinux_lies_below` for a node. nil if it has no descriptor, or has ended.
    ///
    /// A doubt about a node that lies in its grant ends. Never blocks.
    private func look(at id: UInt64, in scope: ScopeNodes, of view: ViewFS) -> Int32? {
        let moment = scope.doubts.load(ordering: .sequentiallyConsistent)
        return view.tree.withHeldDescriptor(of: id, in: scope) { descriptor in
            var place: Int32 = -EAGAIN
            guard let node = view.tree.nodes.find(id) else { return place }
            view.tree.withRoot(of: scope) { if $0 >= 0 { place = view.place(of: descriptor, below: $0, node, id: id) } }
            if place == 1 { view.tree.settle(node, since: moment) }
            return place
        }
    }

    /// Looks at every node of a scope again, because reports of moves may have been missed.
    ///
    /// Operations on a node check its place first, until the scanning thread has looked at it. The
    /// next turn looks at open files.
    func lookAgain(in scope: ScopeNodes) {
        guard let view else { return }
        view.tree.doubt(scope)
        view.hostWatch.countRename()
    }

    /// Looks at one node again, because a report of its move may have come before the node.
    ///
    /// Never blocks. Locking: that of `suspect`.
    func lookAgain(at id: UInt64, _ node: NodePointer) {
        if let view, view.tree.doubt(node) { check(at: id, in: node.pointee.scope) }
    }

    /// Requests a check of a node.
    func suspect(_ id: UInt64, in scope: UInt32) {
        // A document may be moved anywhere: it is followed.
        if view?.tree.scope(scope)?.document != nil { return }
        let isNew = suspects.withLock { suspects -> Bool in
            suspects[scope, default: Suspects()].nodes.insert(id)
            if suspects[scope]!.isJudged { return false }
            suspects[scope]!.isJudged = true
            return true
        }
        if isNew { startJudging(scope) }
    }

    /// Waits until no node of a scope is suspected, for at most 0.1 s.
    func awaitVerdict(in scope: UInt32) {
        for _ in 0..<Self.judgementTurns {
            if suspects.withLock({ $0[scope] == nil }) { return }
            usleep(Self.judgementPause)
        }
    }

    private func startJudging(_ scope: UInt32) {
        let thread = try? WorkerThread.start("grantfs-leaving") { [self] in
            // A new thread inherits the identity of the worker that starts it.
            Identity.resetOnThisThread()
            while PauseGate.run(
                view?.pauseGate,
                {
                    guard let nodes = take(scope) else { return false }
                    judge(nodes, in: scope)
                    return true
                })
            {}
        }
        // Retried at the next turn.
        guard let thread else { return suspects.withLock { $0[scope]?.isJudged = false } }
        thread.detach()
    }

    private func take(_ scope: UInt32) -> Set<UInt64>? {
        suspects.withLock { suspects in
            guard let nodes = suspects[scope]?.nodes, !nodes.isEmpty else {
                suspects[scope] = nil
                return nil
            }
            suspects[scope]!.nodes = []
            return nodes
        }
    }

    private func judge(_ nodes: Set<UInt64>, in number: UInt32) {
        guard let view, let scope = view.tree.scope(number) else { return }
        Departure(view: view, scope: scope).carryOut(of: nodes)
    }

    // MARK: turns

    private func run() {
        var (turn, hand, left, renames) = (UInt64(0), UInt32(0), UInt32(0), UInt64(0))
        while let view, view.session?.hasEnded != true {
            view.pauseGate.begin()
            for scope in suspects.withLock({ $0.filter { !$0.value.isJudged }.map(\.key) }) {
                suspects.withLock { $0[scope]?.isJudged = true }
                startJudging(scope)
            }
            turn &+= 1
            let now = view.hostWatch.renamesSeen
            if now != renames || view.policy.writeBack { left = view.tree.indexLimit }
            var places = Places(view: view, watched: now != renames || left > 0)
            renames = now
            let look: (NodeTree.UnpinnedSnapshot) -> Void = { [self] seen in
                let place = places.isAbove(seen)
                let isNameless = place != 0 && place != 1
                if place == 0 || (isNameless && (turn &+ seen.node) % Self.turnsOfNameless == 0) { suspect(seen.node, in: seen.scope) }
            }
            view.files.forEachUnpinned(look)
            view.directories.forEachUnpinned(look)
            lookAtDirectories(view, &hand, &left, look)
            view.pauseGate.end()
            usleep(Self.pause)
        }
    }

    /// Looks at directories, and at nodes in doubt.
    ///
    /// Sweeps the table like a clock hand, as far as a turn allows. A node in doubt without a
    /// descriptor or a name waits for an operation.
    private func lookAtDirectories(_ view: ViewFS, _ hand: inout UInt32, _ left: inout UInt32, _ look: (NodeTree.UnpinnedSnapshot) -> Void)
    {
        let limit = view.tree.indexLimit
        var (seen, steps) = (0, 0)
        while left > 0, limit > 0, seen < Self.directoriesPerTurn, steps < Self.stepsPerTurn {
            left -= 1
            steps += 1
            hand = hand &+ 1 < limit ? hand &+ 1 : 0
            if let doubted = view.tree.doubted(at: hand), let scope = view.tree.scope(doubted.scope) {
                seen += Self.costOfDoubt
                // Without a name only its directory's listing tells. That waits for an operation.
                if self.look(at: doubted.id, in: scope, of: view) == 0 { suspect(doubted.id, in: doubted.scope) }
                continue
            }
            guard let directory = view.tree.directory(at: hand, orFile: view.kernelOpens) else { continue }
            seen += 1
            look(directory)
        }
    }

    /// The paths of the granted directories, for one turn.
    private struct Places {
        let view: ViewFS
        /// Whether scopes with reported renames are scanned as well.
        let watched: Bool
        private var known: [UInt32: Place?] = [:]

        private struct Place {
            let root: UInt64
            let isLookedAt: Bool
            let hasRules: Bool
            var path: [UInt8]?
        }

        init(view: ViewFS, watched: Bool) {
            self.view = view
            self.watched = watched
        }

        /// See `clinux_path_is_above`. Also 1 if there is no path to compare with.
        mutating func isAbove(_ seen: NodeTree.UnpinnedSnapshot) -> Int32 {
            guard var place = known[seen.scope] ?? note(seen.scope), place.isLookedAt, place.root != seen.node else { return 1 }
            if place.hasRules { return isVisible(seen) }
            if place.path == nil {
                place.path = view.tree.scope(seen.scope).flatMap { view.path(of: $0) } ?? []
                known[seen.scope] = place
            }
            guard let path = place.path, !path.isEmpty else { return 1 }
            return path.withUnsafeBytes {
                clinux_path_is_above($0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count, seen.descriptor)
            }
        }

        /// The same in a scope with rules.
        private func isVisible(_ seen: NodeTree.UnpinnedSnapshot) -> Int32 {
            guard let scope = view.tree.scope(seen.scope), let node = view.tree.nodes.find(seen.node) else { return 1 }
            var result: Int32 = 1
            view.tree.withRoot(of: scope) { if $0 >= 0 { result = view.place(of: seen.descriptor, below: $0, node, id: nil) } }
            return result
        }

        private mutating func note(_ number: UInt32) -> Place? {
            let place = view.tree.scope(number).flatMap { scope -> Place? in
                guard let root = scope.root, !scope.hasReleased else { return nil }
                let isUnwatched = scope.isUnwatched.load(ordering: .relaxed) || scope.hasUnwatched.load(ordering: .relaxed)
                return Place(root: root.id, isLookedAt: watched || isUnwatched, hasRules: scope.ruled.hasRules)
            }
            known[number] = place
            return place
        }
    }
}
