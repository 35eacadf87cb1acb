import CGrantSystem

/// A copy of a mount that has no place yet.
///
/// For processes with one thread, which enter other mount namespaces and return to the root directory
/// of their own.
package struct DetachedMount: ~Copyable {
    private let tree: FileDescriptor

    /// Copies the FUSE mount at an absolute path without links, which a process sees there.
    package init(of place: String, seenBy process: Int32) throws(Errno) {
        tree = FileDescriptor(owning: try Errno.check(clinux_copy_mount(process, place)))
    }

    /// Attaches it in the mount namespace of a process, below a directory there.
    ///
    /// Links in `path` do not leave `root`, and missing directories are made.
    package func attach(inNamespaceOf process: Int32, root: String, path: String) throws(Errno) {
        _ = try Errno.check(clinux_attach_mount(tree.number, process, root, path))
    }
}
