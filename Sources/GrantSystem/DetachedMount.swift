import CGrantSystem

/// A copy of a mount that has no place yet.
public struct DetachedMount: ~Copyable {
    private let tree: FileDescriptor

    /// Copies the mount at an absolute path without links.
    public init(of place: String) throws(Errno) { tree = FileDescriptor(owning: try Errno.check(clinux_copy_mount(place))) }

    /// Attaches it in the mount namespace of a process, below a directory there.
    ///
    /// Links in `path` do not leave `root`, and missing directories are made. For a process with one
    /// thread, which enters the namespace and returns to the root directory of its own.
    public func attach(inNamespaceOf process: Int32, root: String, path: String) throws(Errno) {
        _ = try Errno.check(clinux_attach_mount(tree.number, process, root, path))
    }
}
