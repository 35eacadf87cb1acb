import Glibc

/// Settings of the kernel's memory management for one filesystem (sysfs, class bdi).
///
/// Only root may change them. Without that right the kernel's settings stay, and no error is
/// reported.
public enum BackingDevice {
    /// Sets the readahead for files on this device. The kernel's default is 128 KiB.
    public static func setReadAhead(kilobytes: Int, of device: DeviceNumber) { _ = set("read_ahead_kb", kilobytes, of: device) }

    /// Lifts the per-filesystem limit on dirty pages, so that only the global limit applies.
    ///
    /// The kernel limits a FUSE filesystem to one hundredth of the global amount. Before Linux 6.14
    /// the limit is zero if little was written back lately. Writers wait at that limit
    /// (mm/page-writeback.c, balance_dirty_pages). So pages of one granted filesystem that hangs
    /// would block writers of every grant in the mount. Before Linux 6.2 the limit cannot be
    /// lifted. The hundredth is then at least guaranteed.
    public static func liftOwnBound(of device: DeviceNumber) {
        if !set("strict_limit", 0, of: device) { _ = set("min_ratio", 1, of: device) }
    }

    private static func set(_ attribute: String, _ value: Int, of device: DeviceNumber) -> Bool {
        guard let file = try? FileDescriptor.open("/sys/class/bdi/\(device.major):\(device.minor)/\(attribute)".utf8, O_WRONLY) else {
            return false
        }
        let text = Array("\(value)".utf8)
        return text.withUnsafeBytes { write(file.number, $0.baseAddress!, $0.count) } == text.count
    }
}
