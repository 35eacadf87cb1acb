/// Where a file stands that the kernel knows: in the granted directory, or outside since somebody moved it out beside the mount. Bits of
/// `Node.containment`, `OpenFile.containment` and `OpenDirectory.containment`; 0 where nothing is refused and nothing is to be looked at. The lower ones only
/// ever come: a file that comes back is another node.
public enum Containment {
    /// Reading and changing are refused, as by the gate of a scope; what the kernel's cache brings of its own accord passes.
    public static let escaping: UInt8 = 0b011
    /// Everything is.
    public static let escaped: UInt8 = 0b111
    /// Of a node: moves are not told in its scope, so whoever uses it looks where it lies.
    public static let isUnwatched: UInt8 = 0b1000_0000
}
