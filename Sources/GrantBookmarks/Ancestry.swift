import GrantModel
import GrantSystem

/// Caches the identities of parent directories: each is read once.
final class Ancestry {
    private var known: [[UInt8]: FileIdentity] = [:]

    /// Returns the parents of a canonical path, the nearest first.
    ///
    /// Ends at the first parent that cannot be read.
    func ancestors(of path: [UInt8]) -> [FileIdentity] {
        var result: [FileIdentity] = []
        var place = CanonicalPath.parent(path)
        while let directory = place, let identity = identity(of: directory) {
            result.append(identity)
            place = CanonicalPath.parent(directory)
        }
        return result
    }

    /// The identity of a directory. Returns nil if it cannot be read.
    func identity(of directory: [UInt8]) -> FileIdentity? {
        if let identity = known[directory] { return identity }
        guard let opened = try? CanonicalPath.open(directory, OpenFlags.path), let candidate = Candidate(opened) else { return nil }
        let identity = FileIdentity(inode: UInt64(truncatingIfNeeded: candidate.status.st.st_ino), birthTime: candidate.birthTime)
        known[directory] = identity
        return identity
    }
}

extension FileIdentity {
    /// Whether both may identify the same directory of one filesystem.
    func agrees(with other: FileIdentity) -> Bool {
        inode == other.inode && (birthTime == nil || other.birthTime == nil || birthTime == other.birthTime)
    }
}
