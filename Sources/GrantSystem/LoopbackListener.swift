import Glibc

/// A socket that listens on the loopback interface, at a port that the kernel chooses.
///
/// The interface is that of this network namespace.
public struct LoopbackListener: ~Copyable {
    private let descriptor: FileDescriptor
    public let port: UInt16

    public var number: Int32 { descriptor.number }

    public init() throws(Errno) {
        let number = socket(AF_INET, Int32(truncatingIfNeeded: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw Errno(errno) }
        let made = FileDescriptor(owning: number)
        port = try LoopbackListener.listen(made)
        descriptor = made
    }

    private static func listen(_ socket: borrowing FileDescriptor) throws(Errno) -> UInt16 {
        let number = socket.number
        var place = sockaddr_in()
        place.sin_family = sa_family_t(AF_INET)
        place.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &place) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { place in
                bind(number, place, size) == 0 && Glibc.listen(number, 128) == 0 && getsockname(number, place, &size) == 0 ? 0 : errno
            }
        }
        if result != 0 { throw Errno(result) }
        return UInt16(bigEndian: place.sin_port)
    }
}
