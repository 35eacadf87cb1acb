import GrantCoordinator
import Foundation
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

extension ClaimedItem {
    /// Describes what exists, or could exist, at an absolute path, and its parent directories.
    /// Links above the last name are followed, that one only with `followsLink`. Throws
    /// `.permission` if a parent may not be searched.
    init(path given: [UInt8], followsLink: Bool = false) throws(GrantError) {
        var path = CanonicalPath.resolveWhatExists(CanonicalPath.parent(of: given))
        let name = CanonicalPath.lastName(of: given)
        if !name.isEmpty { path = CanonicalPath.join(path, name) }
        if followsLink { path = CanonicalPath.resolveWhatExists(path) }
        let names = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: true).map { Array($0) }
        var above: [ItemID] = []
        var directory: [UInt8] = [UInt8(ascii: "/")]
        var rest = names[...]
        while let id = try ItemID(at: directory) {
            above.append(id)
            guard rest.count > 1, let next = rest.first, try ItemID(at: CanonicalPath.join(directory, next)) != nil else { break }
            directory = CanonicalPath.join(directory, next)
            rest = rest.dropFirst()
        }
        guard let parent = above.last, !rest.isEmpty else {
            // The root directory.
            self.init(identities: above, place: nil, ancestors: [])
            return
        }
        // If parents are missing too, the rest of the path is the name.
        let place = ItemPlace(directory: parent, name: Array(rest.joined(separator: [UInt8(ascii: "/")])))
        self.init(identities: try ItemID(at: path).map { [$0] } ?? [], place: place, ancestors: above)
    }
}

extension ItemID {
    /// The result is nil if nothing exists.
    fileprivate init?(at path: [UInt8]) throws(GrantError) {
        do throws(Errno) {
            let status = try FileDescriptor.open(path, OpenFlags.path | O_NOFOLLOW).status()
            self.init(UInt64(status.st.st_dev), UInt64(status.st.st_ino), FileIdentity(status).birthTime?.nanoseconds ?? 0)
        } catch {
            if error == Errno(ENOENT) || error == Errno(ENOTDIR) { return nil }
            throw FilePath.failure(error, path)
        }
    }
}
