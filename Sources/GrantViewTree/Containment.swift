/// Whether a known file was moved out of its granted directory on the host, or is protected by a rule.
///
/// Bits of `Node.containment`, `OpenFile.containment` and `OpenDirectory.containment`. They are 0
/// if no operation is refused or must check. The bits of `escaped` are never cleared, because a file
/// that returns is another node. A file with a hidden
/// name counts as moved out.
public enum Containment {
    /// Reads and changes are refused, as by a scope's gate. The kernel's own write-back passes.
    public static let escaping: UInt8 = 0b011
    /// Everything is refused.
    public static let escaped: UInt8 = 0b111
    /// Of a node: the report of a move may have been missed, so operations check its place until it
    /// is known. See `NodeTree.settle`.
    public static let isDoubted: UInt8 = 0b0000_1000
    /// Changes are refused by a rule of the grant. The kernel's own write-back passes.
    public static let protecting: UInt8 = 0b0001_0000
    /// All changes are refused by a rule of the grant.
    public static let protected: UInt8 = 0b0011_0000
    /// Of a node: a thread carries its protection out. See `Node.claimProtection`.
    public static let isBeingProtected: UInt8 = 0b0100_0000
    /// The bits that open files and directories take over from their node.
    public static let inherited: UInt8 = escaped | protected
    /// Of a node: renames are not reported in its scope, so each operation checks its place.
    public static let isUnwatched: UInt8 = 0b1000_0000
}
