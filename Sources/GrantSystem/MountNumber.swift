import CGrantSystem

/// Unique mount IDs (Linux 6.8), which are never reused, unlike the IDs of mountinfo.
public enum MountNumber {
    /// Whether the mount exists in this process's namespace. Never blocks.
    ///
    /// Returns nil if the kernel does not tell. See statmount(2).
    public static func isThere(_ number: UInt64) -> Bool? {
        let result = clinux_mount_is_there(number)
        return result < 0 ? nil : result != 0
    }
}
