import CGrantSystem

extension FileDescriptor {
    /// syncfs(2) of the file's filesystem. Best effort.
    ///
    /// Processes that have the files open get the errors.
    public func flushFilesystem() { _ = clinux_syncfs(number) }
}
