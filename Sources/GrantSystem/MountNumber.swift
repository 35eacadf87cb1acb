import CGrantSystem

/// The numbers by which the kernel tells mounts apart for ever (Linux 6.8): the id in mountinfo is used again.
public enum MountNumber {
    /// Whether the mount is in this process's namespace; nil where the kernel does not say. No filesystem is asked. See statmount(2).
    public static func isThere(_ number: UInt64) -> Bool? {
        let result = clinux_mount_is_there(number)
        return result < 0 ? nil : result != 0
    }
}
