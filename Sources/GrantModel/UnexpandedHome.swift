/// A `~` that no shell has expanded, because it was quoted or came after `=`.
public enum UnexpandedHome {
    /// Returns what to do about a path that was not found, or nil if it does not begin with `~`.
    public static func advice(for path: [UInt8]) -> String? {
        guard path.first == 0x7E else { return nil }
        return "no shell has expanded the ~: leave the quotes away, or write $HOME"
    }
}
