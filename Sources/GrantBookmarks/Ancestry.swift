import GrantModel
import GrantSystem

/// The identities of the directories above others, each looked at once.
final class Ancestry {
    private var known: [[UInt8]: FileIdentity] = [:]

    /// Of the directories above a canonical path, the nearest first. It ends at one that cannot be looked at.
    func above(_ path: [UInt8]) -> [FileIdentity] {
        var result: [FileIdentity] = []
        var place = CanonicalPath.parent(path)
        while let directory = place, let identity = identity(of: directory) {
            result.append(identity)
            place = CanonicalPath.parent(directory)
        }
        return result
    }

    /// nil for what cannot be looked at.
    func identity(of directory: [UInt8]) -> FileIdentity? {
        if let identity = known[directory] { return identity }
        guard let opened = try? CanonicalPath.open(directory, OpenFlags.path), let candidate = Candidate(opened) else { return nil }
        let identity = FileIdentity(inode: UInt64(truncatingIfNeeded: candidate.status.st.st_ino), birthTime: candidate.birthTime)
        known[directory] = identity
        return identity
    }
}

extension FileIdentity {
    /// Whether the two may be of one directory, on a filesystem that both are known to be on.
    func agrees(with other: FileIdentity) -> Bool {
        inode == other.inode && (birthTime == nil || other.birthTime == nil || birthTime == other.birthTime)
    }
}
