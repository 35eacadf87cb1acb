import Glibc
import Synchronization

/// The last place of a node: its directory's node, and its name there.
///
/// The name is kept only if it is needed to reopen the node.
struct Place: ~Copyable {
    let parent: UInt64
    /// Owned, and freed with the value.
    private var name: UnsafeMutablePointer<CChar>?

    init(parent: UInt64, name: UnsafePointer<CChar>?) {
        self.parent = parent
        self.name = name.map { strdup($0) }
    }

    deinit { free(name) }

    /// Makes this the node's place, and takes the node's old name in return.
    ///
    /// Locking: under the shard's.
    mutating func exchange(with node: UnsafeMutablePointer<Node>) {
        node.pointee.parent.store(parent, ordering: .relaxed)
        node.pointee.keepsDescriptor.store(false, ordering: .relaxed)
        guard let new = name else { return }
        let old = UnsafeMutablePointer<CChar>(bitPattern: node.pointee.name.load(ordering: .relaxed))
        if let old, strcmp(old, new) == 0 { return }
        node.pointee.name.store(UInt(bitPattern: new), ordering: .relaxed)
        name = old
    }
}

extension Node {
    /// Copies the node's name into 256 bytes.
    ///
    /// Returns false if it was not last found in `parent`, or if the name is not known.
    ///
    /// Locking: under the shard's.
    func copyName(in parent: UInt64, to buffer: UnsafeMutablePointer<CChar>) -> Bool {
        guard self.parent.load(ordering: .relaxed) == parent,
            let name = UnsafePointer<CChar>(bitPattern: name.load(ordering: .relaxed))
        else { return false }
        let length = strlen(name)
        guard length < 256 else { return false }
        memcpy(buffer, name, length + 1)
        return true
    }

    /// Clears the node's place if it is this one. Returns the name, which the caller frees.
    ///
    /// Locking: under the shard's.
    func forgetPlace(_ parent: UInt64, _ name: UnsafePointer<CChar>) -> UnsafeMutablePointer<CChar>? {
        guard self.parent.load(ordering: .relaxed) == parent,
            let known = UnsafeMutablePointer<CChar>(bitPattern: self.name.load(ordering: .relaxed)), strcmp(known, name) == 0
        else { return nil }
        self.name.store(0, ordering: .relaxed)
        return known
    }
}
