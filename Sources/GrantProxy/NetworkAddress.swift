import Glibc

/// An IPv4 or IPv6 address. An IPv4-mapped one (`::ffff:127.0.0.1`) equals the IPv4 address.
public struct NetworkAddress: Hashable, Sendable, CustomStringConvertible {
    /// Four bytes or sixteen.
    let bytes: [UInt8]

    init(bytes: [UInt8]) {
        let isMapped = bytes.count == 16 && bytes[..<10].allSatisfy { $0 == 0 } && bytes[10] == 0xFF && bytes[11] == 0xFF
        self.bytes = isMapped ? Array(bytes[12...]) : bytes
    }

    /// Parses text as inet_pton(3) does: no leading zeros, no short forms, no zone. The result is
    /// nil for anything else.
    public init?(_ text: String) {
        var four = in_addr()
        var six = in6_addr()
        if inet_pton(AF_INET, text, &four) == 1 {
            self.init(bytes: withUnsafeBytes(of: &four) { Array($0) })
        } else if inet_pton(AF_INET6, text, &six) == 1 {
            self.init(bytes: withUnsafeBytes(of: &six) { Array($0) })
        } else {
            return nil
        }
    }

    /// The result is nil for other address families.
    init?(_ address: UnsafePointer<sockaddr>) {
        switch Int32(address.pointee.sa_family) {
        case AF_INET:
            self = address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                NetworkAddress(bytes: withUnsafeBytes(of: $0.pointee.sin_addr) { Array($0) })
            }
        case AF_INET6:
            self = address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
                NetworkAddress(bytes: withUnsafeBytes(of: $0.pointee.sin6_addr) { Array($0) })
            }
        default: return nil
        }
    }

    public var description: String {
        var text = [CChar](repeating: 0, count: 64)
        let family = bytes.count == 4 ? AF_INET : AF_INET6
        guard inet_ntop(family, bytes, &text, socklen_t(text.count)) != nil else { return "?" }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Whether it is 127.0.0.1 or ::1.
    var isLoopback: Bool { bytes == [127, 0, 0, 1] || bytes == [UInt8](repeating: 0, count: 15) + [1] }

    /// Whether it is globally routable: no loopback, no private or link-local network, no multicast, nothing reserved (RFC 6890), and
    /// no IPv6 address that embeds an IPv4 one.
    public var isGlobal: Bool {
        if bytes.count == 4 { return !NetworkAddress.special.contains { isBelow($0.0, $0.1) } }
        return isBelow([0x20], 3) && !NetworkAddress.specialSix.contains { isBelow($0.0, $0.1) }
    }

    private static let special: [([UInt8], Int)] = [
        ([0], 8), ([10], 8), ([100, 64], 10), ([127], 8), ([169, 254], 16), ([172, 16], 12), ([192, 0, 0], 24), ([192, 0, 2], 24),
        ([192, 88, 99], 24), ([192, 168], 16), ([198, 18], 15), ([198, 51, 100], 24), ([203, 0, 113], 24), ([224], 4), ([240], 4),
    ]
    /// Exceptions within 2000::/3. Outside of that, no IPv6 address is global.
    private static let specialSix: [([UInt8], Int)] = [
        ([0x20, 0x01, 0x00], 23), ([0x20, 0x01, 0x0D, 0xB8], 32), ([0x20, 0x02], 16), ([0x3F, 0xFF, 0x00], 20),
    ]

    private func isBelow(_ prefix: [UInt8], _ length: Int) -> Bool {
        for bit in 0..<length {
            let mask = UInt8(0x80) >> UInt8(bit % 8)
            let wanted = bit / 8 < prefix.count ? prefix[bit / 8] : 0
            if bytes[bit / 8] & mask != wanted & mask { return false }
        }
        return true
    }

    /// The addresses of this machine now.
    static func ownAddresses() -> Set<NetworkAddress> {
        var list: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&list) == 0 else { return [] }
        defer { freeifaddrs(list) }
        var result: Set<NetworkAddress> = []
        var next = list
        while let entry = next {
            if let address = entry.pointee.ifa_addr.flatMap({ NetworkAddress($0) }) { result.insert(address) }
            next = entry.pointee.ifa_next
        }
        return result
    }
}
