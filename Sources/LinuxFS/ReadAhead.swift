import Glibc

/// How far the kernel reads ahead in the files of a filesystem.
public enum ReadAhead {
    /// For the filesystem of this device (sysfs, class bdi, read_ahead_kb). Only root may; elsewhere it stays at the kernel's 128 KiB,
    /// of which there is nothing to say.
    public static func set(kilobytes: Int, of device: DeviceNumber) {
        guard let file = try? FileDescriptor.open("/sys/class/bdi/\(device.major):\(device.minor)/read_ahead_kb".utf8, O_WRONLY) else {
            return
        }
        let text = Array("\(kilobytes)".utf8)
        _ = text.withUnsafeBytes { write(file.number, $0.baseAddress!, $0.count) }
    }
}
