import Glibc
import GrantSystem

/// Opens connections to hosts, if the policy permits them.
struct Connector: Sendable {
    enum Failure: Error {
        /// The reason, for people.
        case refused(String)
        case unreachable(String)
    }

    let policy: HostPolicy
    /// How many addresses of a name are tried, and for how long each: nanoseconds.
    private static let (maxAddresses, connectTimeout): (Int, Int64) = (8, 10_000_000_000)

    /// Resolves a name once and connects only to those of its addresses that the policy permits.
    func connect(_ host: TargetHost, port: UInt16) throws(Failure) -> FileDescriptor {
        guard policy.permits(host, port: port) else { throw .refused("it is not on the list") }
        let own = NetworkAddress.ownAddresses()
        var foreign: NetworkAddress?
        var failure: Failure?
        for address in try addresses(of: host).prefix(Connector.maxAddresses) {
            guard policy.permits(address, port: port, own: own) else {
                foreign = foreign ?? address
                continue
            }
            do throws(Errno) {
                return try Connector.connect(address, port)
            } catch {
                failure = .unreachable("\(host):\(port): \(error)")
            }
        }
        if let failure { throw failure }
        guard let foreign else { throw .refused("its name leads to no address") }
        let form = foreign.description.contains(":") ? "[\(foreign)]" : foreign.description
        throw .refused(
            "its name leads to \(foreign), which is this machine or in a private network (--network-hosts \(form):\(port) allows it)")
    }

    private func addresses(of host: TargetHost) throws(Failure) -> [NetworkAddress] {
        guard case .name(let name) = host else {
            if case .address(let address) = host { return [address] }
            return []
        }
        var hints = addrinfo()
        hints.ai_socktype = Int32(truncatingIfNeeded: SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let error = getaddrinfo(name, nil, &hints, &list)
        guard error == 0 else { throw .unreachable("\(name): \(String(cString: gai_strerror(error)))") }
        defer { freeaddrinfo(list) }
        var result: [NetworkAddress] = []
        var next = list
        while let entry = next {
            if let address = entry.pointee.ai_addr.flatMap({ NetworkAddress($0) }), !result.contains(address) { result.append(address) }
            next = entry.pointee.ai_next
        }
        return result
    }

    private static func connect(_ address: NetworkAddress, _ port: UInt16) throws(Errno) -> FileDescriptor {
        let family = address.bytes.count == 4 ? AF_INET : AF_INET6
        let number = socket(family, Int32(truncatingIfNeeded: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard number >= 0 else { throw Errno(errno) }
        let made = FileDescriptor(owning: number)
        let result: Int32
        if family == AF_INET {
            var place = sockaddr_in()
            place.sin_family = sa_family_t(AF_INET)
            place.sin_port = port.bigEndian
            withUnsafeMutableBytes(of: &place.sin_addr) { $0.copyBytes(from: address.bytes) }
            result = connect(number, to: &place)
        } else {
            var place = sockaddr_in6()
            place.sin6_family = sa_family_t(AF_INET6)
            place.sin6_port = port.bigEndian
            withUnsafeMutableBytes(of: &place.sin6_addr) { $0.copyBytes(from: address.bytes) }
            result = connect(number, to: &place)
        }
        if result == 0 { return made }
        guard errno == EINPROGRESS else { throw Errno(errno) }
        try Poll.wait(number, writing: true, deadline: Clock.monotonic + connectTimeout)
        var (error, size) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
        guard getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &size) == 0, error == 0 else { throw Errno(error == 0 ? errno : error) }
        return made
    }

    /// Calls connect(2) with a socket address of any family.
    private static func connect<Address>(_ socket: Int32, to place: inout Address) -> Int32 {
        withUnsafePointer(to: &place) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(socket, $0, socklen_t(MemoryLayout<Address>.size)) }
        }
    }
}
