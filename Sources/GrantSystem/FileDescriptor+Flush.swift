import CGrantSystem

extension FileDescriptor {
    /// syncfs(2) of the file's filesystem. Best effort: errors are reported to those who have the files open.
    public func flushFilesystem() { _ = clinux_syncfs(number) }
}
