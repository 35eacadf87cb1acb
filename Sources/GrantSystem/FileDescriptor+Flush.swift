import CGrantSystem

extension FileDescriptor {
    /// syncfs(2) of the file system the file is on. Best effort: what fails is said to those who have the files open.
    public func flushFilesystem() { _ = clinux_syncfs(number) }
}
