import Glibc

/// The running kernel's version, for capabilities that the kernel does not report in another way.
public enum KernelRelease {
    /// (6, 8) for `6.8.0-45-generic` (uname(2)). It is nil for another format.
    public static let current: (major: Int, minor: Int)? = {
        var name = utsname()
        guard uname(&name) == 0 else { return nil }
        let text = withUnsafeBytes(of: &name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        let numbers = text.split(whereSeparator: { !$0.isNumber }).compactMap { Int($0, radix: 10) }
        return numbers.count >= 2 ? (numbers[0], numbers[1]) : nil
    }()
}
