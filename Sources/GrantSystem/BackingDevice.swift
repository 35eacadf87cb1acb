import Glibc

/// What the kernel's memory management goes by for a filesystem (sysfs, class bdi). Only root may change it; elsewhere it stays as the kernel has it, of which there is
/// nothing to say.
public enum BackingDevice {
    /// How far the kernel reads ahead in the files of the filesystem of this device, instead of 128 KiB.
    public static func setReadAhead(kilobytes: Int, of device: DeviceNumber) { _ = set("read_ahead_kb", kilobytes, of: device) }

    /// What a filesystem may have that is not written back yet is bounded with all others' alone.
    ///
    /// The kernel gives a FUSE filesystem a bound of its own: a hundredth of all, and before Linux 6.14 nothing at all where little was written back lately. Whoever
    /// writes waits at the bound (mm/page-writeback.c, balance_dirty_pages), and what cannot be written back to a granted filesystem that hangs counts for all grants of
    /// a mount. Before Linux 6.2, where that bound cannot be lifted, the hundredth is at least certain.
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
