import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

// Bookmarks of directories that were found somewhere else are renewed, all of a round in one transaction: each waits for the disk.
extension MountedView {
    struct Renewal: Sendable {
        let grant: GrantID
        /// As it was when the directory was found by it.
        let old: Bookmark
        let new: Bookmark
        /// Whether the file that replaced the document was put there through the grant.
        var replacedThroughGrant: Bool?
    }

    /// Collects the results of one round over directories.
    final class RoundResults: Sendable {
        private struct Contents {
            var shown: [GrantID] = []
            var renewals: [Renewal] = []
            var isOver = false
        }

        private let contents = Lock(Contents())

        /// Adds a result for the thread that ends the round. Returns false if the round has ended.
        /// Then the caller has to handle it.
        func add(_ grant: GrantID?, _ renewal: Renewal?) -> Bool {
            contents.withLock { contents in
                if contents.isOver { return false }
                if let grant { contents.shown.append(grant) }
                if let renewal { contents.renewals.append(renewal) }
                return true
            }
        }

        /// Ends the round and returns its results.
        func end() -> (shown: [GrantID], renewals: [Renewal]) {
            contents.withLock { contents in
                contents.isOver = true
                return (contents.shown, contents.renewals)
            }
        }
    }

    /// Records where directories are now, so that `list` and the next mount know.
    func record(_ renewals: [Renewal]) {
        if renewals.isEmpty { return }
        let store = state.withLock { $0.store }
        do throws(GrantError) {
            try store.renewBookmarks(
                renewals.map { renewal in
                    BookmarkRenewal(
                        grant: renewal.grant, seen: renewal.old.identity, bookmark: renewal.new,
                        detail: renewal.replacedThroughGrant.map { $0 ? "saved through the grant" : "saved beside the grant" })
                }, by: actor)
        } catch {
            // The next round tries again.
            return SystemLog.write(.error, Terminal.visible(error.description), fields)
        }
        state.withLock { state in
            for renewal in renewals where state.grants[renewal.grant]?.grant.bookmark == renewal.old {
                state.grants[renewal.grant]?.grant.bookmark = renewal.new
            }
        }
        for renewal in renewals { claims?.recordMove(renewal.old.path, to: renewal.new.path) }
    }
}
