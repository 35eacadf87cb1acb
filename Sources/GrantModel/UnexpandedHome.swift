/// A `~` that no shell has expanded: in quotes, or behind `=`.
public enum UnexpandedHome {
    /// What to do about a path that leads nowhere; nil for one that does not begin with `~`.
    public static func advice(for path: [UInt8]) -> String? {
        guard path.first == 0x7E else { return nil }
        return "no shell has expanded the ~: leave the quotes away, or write $HOME"
    }
}
