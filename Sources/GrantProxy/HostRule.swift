import GrantModel

/// One entry in the list of hosts that a program may reach.
///
/// `example.org`: ports 80 and 443. `example.org:8443`: only that port. `*.example.org`: every subdomain, but not the domain itself.
/// `10.0.0.5:8080`, `[2001:db8::1]`: an address. This machine and private networks can only be reached by such an address, and this
/// machine's loopback also as `localhost`.
public struct HostRule: Sendable, Equatable {
    private enum Pattern: Sendable, Equatable {
        case name(String)
        case below(String)
        case address(NetworkAddress)
    }

    /// Whether it begins with `!`: the host cannot be reached, at any port, even if another rule permits it.
    let isDenied: Bool
    private let pattern: Pattern
    private let ports: [UInt16]
    /// As it was written.
    public let text: String

    /// Throws `.usage` if it cannot be parsed.
    public init(_ text: String) throws(GrantError) {
        self.text = text
        isDenied = text.hasPrefix("!")
        let text = isDenied ? String(text.dropFirst()) : text
        let isBelow = text.hasPrefix("*.")
        // Without a port, an IPv6 address needs no brackets.
        let alone: (host: TargetHost, port: UInt16?)? = NetworkAddress(text).map { (.address($0), nil) }
        guard let (host, port) = alone ?? TargetHost.split(isBelow ? text.dropFirst(2) : text[...]) else {
            throw GrantError(
                .usage, "invalid host “\(text)”", advice: text == "*" ? "--network allows the whole network" : HostRule.forms)
        }
        ports = port.map { [$0] } ?? [80, 443]
        switch host {
        case .name(let name): pattern = isBelow ? .below(name) : .name(name)
        case .address(let address):
            if isBelow { throw GrantError(.usage, "invalid host “\(text)”", advice: HostRule.forms) }
            pattern = .address(address)
        }
    }

    private static let forms = "example.org, *.example.org:443, 10.0.0.5:8080 or [2001:db8::1]:443"

    /// The name or address for which programs must use the proxy, or nil for a rule of subdomains.
    public var host: String? {
        if isDenied { return nil }
        return switch pattern {
        case .name(let name): name
        case .below: nil
        case .address(let address): address.description
        }
    }

    /// Whether this rule names the loopback of this machine, by the name that every machine has for it.
    func permitsLoopback(port: UInt16) -> Bool { !isDenied && pattern == .name("localhost") && ports.contains(port) }

    /// Whether a program may ask for this host and port.
    func permits(_ host: TargetHost, port: UInt16) -> Bool {
        !isDenied && ports.contains(port) && names(host)
    }

    /// Whether the host is the rule's, at any port.
    func names(_ host: TargetHost) -> Bool {
        switch (pattern, host) {
        case (.name(let name), .name(let other)): name == other
        case (.below(let name), .name(let other)): other.hasSuffix("." + name)
        case (.address(let address), .address(let other)): address == other
        default: false
        }
    }
}

/// The rules of all that a program may reach.
struct HostPolicy: Sendable {
    let rules: [HostRule]

    func permits(_ host: TargetHost, port: UInt16) -> Bool {
        rules.contains { $0.permits(host, port: port) } && !rules.contains { $0.isDenied && $0.names(host) }
    }

    /// Whether to connect to an address of a permitted host: it has to be global and not this machine's, or be listed itself.
    func permits(_ address: NetworkAddress, port: UInt16, own: Set<NetworkAddress>) -> Bool {
        if rules.contains(where: { $0.isDenied && $0.names(.address(address)) }) { return false }
        return permits(.address(address), port: port) || (address.isGlobal && !own.contains(address))
            || (address.isLoopback && rules.contains { $0.permitsLoopback(port: port) })
    }
}
