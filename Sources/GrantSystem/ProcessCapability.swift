import CGrantSystem

/// The capabilities of the calling thread, see capabilities(7).
public enum ProcessCapability {
    /// Whether it is effective.
    public static func has(_ number: Int32) -> Bool { clinux_has_capability(number) }
}
