/// The host that a client asks for: a name or an address.
enum TargetHost: Hashable, CustomStringConvertible {
    /// In lower case, without a trailing dot.
    case name(String)
    case address(NetworkAddress)

    /// The result is nil for anything else: characters that no host name has, an empty label, and
    /// the short forms of an IPv4 address (`127.1`, `0x7f000001`) that a resolver would accept.
    init?(_ text: some StringProtocol) {
        var text = String(text)
        if text.first == "[", text.last == "]" {
            guard let address = NetworkAddress(String(text.dropFirst().dropLast())), text.contains(":") else { return nil }
            self = .address(address)
            return
        }
        if let address = NetworkAddress(text) {
            self = .address(address)
            return
        }
        if text.last == "." { text.removeLast() }
        let name = text.lowercased()
        let labels = name.split(separator: ".", omittingEmptySubsequences: false)
        guard name.utf8.count <= 253, labels.allSatisfy({ TargetHost.isLabel($0) }), let last = labels.last,
            !last.utf8.allSatisfy({ (0x30...0x39).contains($0) }), !last.hasPrefix("0x")
        else { return nil }
        self = .name(name)
    }

    private static func isLabel(_ label: Substring) -> Bool {
        (1...63).contains(label.utf8.count) && label.first != "-"
            && label.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x7A).contains($0) || $0 == 0x2D || $0 == 0x5F }
    }

    var description: String {
        switch self {
        case .name(let name): name
        case .address(let address): address.bytes.count == 4 ? "\(address)" : "[\(address)]"
        }
    }

    /// Parses `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`. The result is nil if the text is invalid.
    /// `port` is nil if there is none.
    static func split(_ text: some StringProtocol) -> (host: TargetHost, port: UInt16?)? {
        let afterAddress = text.lastIndex(of: "]").map { text.index(after: $0) } ?? text.startIndex
        guard let colon = text[afterAddress...].lastIndex(of: ":") else { return TargetHost(text).map { ($0, nil) } }
        let digits = text[text.index(after: colon)...]
        guard (1...5).contains(digits.utf8.count), digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let port = UInt16(digits),
            port > 0,
            let host = TargetHost(text[..<colon]), !text[..<colon].contains(":") || text.first == "["
        else { return nil }
        return (host, port)
    }
}
