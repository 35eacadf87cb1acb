import Glibc

/// An error number of the kernel, positive, as errno(3) lists them.
public struct Errno: Error, Equatable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: Int32

    public init(_ rawValue: Int32) { self.rawValue = rawValue }

    /// The C library's words for it.
    public var description: String { String(cString: strerror(rawValue)) }

    /// Whether descriptors, memory or threads have run out, of this process or of the machine, which says nothing about what was asked for.
    public var isExhaustion: Bool { [EMFILE, ENFILE, ENOMEM, EAGAIN].contains(rawValue) }

    /// Takes what the functions of CLinux return: 0 or more, or the negative error number.
    public static func check<Value: SignedInteger & FixedWidthInteger>(_ result: Value) throws(Errno) -> Value {
        if result < 0 { throw Errno(Int32(truncatingIfNeeded: -result)) }
        return result
    }
}
