import CGrantSystem
import Glibc

/// Directories with all below them, as users see them to whom nothing there belongs: detached mounts, read-only, in which the files of
/// root belong to nobody (idmapped mounts, mount_setattr(2)). Root without capabilities may read there what everybody may, also of files
/// that come later.
public final class TreesOfOthers: Sendable {
    private let trees: [(path: String, number: Int32)]

    /// Absolute paths; symbolic links are not followed. Needs root and Linux 5.12. Throws EINVAL when a filesystem there cannot map ids.
    public init(of paths: [String]) throws(Errno) {
        let namespace = FileDescriptor(owning: try Errno.check(clinux_namespace_of_others()))
        var trees: [(path: String, number: Int32)] = []
        do throws(Errno) {
            for path in paths { trees.append((path, try Errno.check(clinux_tree_of_others(path, namespace.number)))) }
        } catch {
            for tree in trees { close(tree.number) }
            throw error
        }
        self.trees = trees
    }

    deinit { for tree in trees { close(tree.number) } }

    /// Puts them in the places of the directories, for the calling thread and the programs that it starts from then on, and for nobody
    /// else. Throws when one cannot be put there; the thread may start nothing then.
    public func cover() throws(Errno) {
        _ = try Errno.check(clinux_mounts_unshare())
        for tree in trees { _ = try Errno.check(clinux_tree_attach(tree.number, tree.path)) }
    }
}
