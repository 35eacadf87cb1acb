/// Whether a file that the kernel knows lies inside its granted directory, or was moved out beside the mount. Bits of
/// `Node.containment`, `OpenFile.containment` and `OpenDirectory.containment`; 0 where nothing is refused and nothing must be
/// checked. The lower bits are never cleared: a file that comes back is another node.
public enum Containment {
    /// Reading and changing are refused, as by a scope's gate; the kernel's own write-back passes.
    public static let escaping: UInt8 = 0b011
    /// Everything is refused.
    public static let escaped: UInt8 = 0b111
    /// Of a node: renames are not reported in its scope, so each operation checks where it lies.
    public static let isUnwatched: UInt8 = 0b1000_0000
}
