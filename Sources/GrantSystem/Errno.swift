import Glibc

/// An error number of the kernel, positive, as errno(3) lists them.
public struct Errno: Error, Equatable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: Int32

    public init(_ rawValue: Int32) { self.rawValue = rawValue }

    /// The C library's words for it.
    public var description: String { String(cString: strerror(rawValue)) }

    /// The largest error number that the kernel gives a program (include/linux/err.h, MAX_ERRNO).
    public static var largest: Int32 { 4095 }

    /// The error number in a negative result, 1 to `largest`; EIO for a result that carries none. The one way to it: a result may be any number, of a
    /// filesystem that somebody made, and the lowest has no positive counterpart.
    @inlinable @inline(__always)
    public static func number(of result: some BinaryInteger) -> Int32 {
        result < 0 && result >= -4095 ? 0 &- Int32(truncatingIfNeeded: result) : EIO
    }

    /// Whether descriptors, memory or threads have run out, of this process or of the machine, which says nothing about what was asked for.
    public var isExhaustion: Bool { [EMFILE, ENFILE, ENOMEM, EAGAIN].contains(rawValue) }

    /// Takes what the functions of CGrantSystem return: 0 or more, or the negative error number.
    public static func check<Value: SignedInteger & FixedWidthInteger>(_ result: Value) throws(Errno) -> Value {
        if result < 0 { throw Errno(number(of: result)) }
        return result
    }
}
