import Glibc

/// An error number of the kernel, positive, as errno(3) lists them.
public struct Errno: Error, Equatable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: Int32

    public init(_ rawValue: Int32) { self.rawValue = rawValue }

    /// strerror(3).
    public var description: String { String(cString: strerror(rawValue)) }

    /// The largest error number that the kernel gives a program (include/linux/err.h, MAX_ERRNO).
    public static var largest: Int32 { 4095 }

    /// Returns the error number in a negative result, 1 to `largest`.
    ///
    /// EIO for a result without one. Convert results only this way: a hostile filesystem may return
    /// any number, and the lowest has no positive counterpart.
    @inlinable @inline(__always)
    public static func number(of result: some BinaryInteger) -> Int32 {
        result < 0 && result >= -4095 ? 0 &- Int32(truncatingIfNeeded: result) : EIO
    }

    /// Whether this process or the machine has run out of descriptors, memory or threads.
    ///
    /// Such an error tells nothing about the requested object.
    public var isExhaustion: Bool { [EMFILE, ENFILE, ENOMEM, EAGAIN].contains(rawValue) }

    /// Returns the result of a CGrantSystem function if it is 0 or more.
    ///
    /// - Throws: The error number of a negative result.
    public static func check<Value: SignedInteger & FixedWidthInteger>(_ result: Value) throws(Errno) -> Value {
        if result < 0 { throw Errno(number(of: result)) }
        return result
    }
}
