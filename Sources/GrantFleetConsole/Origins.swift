/// Checks that requests come from the console's own page, by headers that the browser sets and no page can change.
struct Origins: Sendable {
    /// `http` or `https`.
    let scheme: String
    /// The names by which the console may be reached, in lower case: an address, with brackets if it has colons, or a host name.
    let names: Set<String>

    init(isSecure: Bool, names: [String]) {
        scheme = isSecure ? "https" : "http"
        self.names = Set(names.map { $0.lowercased() })
    }

    /// Whether the Host header is a known name. A foreign name that resolves to this host is not
    /// (DNS rebinding). The port may differ, as through a tunnel. What counts is that the page has
    /// the same.
    func knows(host: String?) -> Bool {
        guard let host, let name = Origins.name(in: host) else { return false }
        return names.contains(name)
    }

    /// Parses `NAME`, `NAME:PORT` or `[ADDRESS]:PORT`. The result is nil for other text.
    static func name(in host: String) -> String? {
        let text = host.lowercased()
        let isAddress = text.hasPrefix("[")
        guard let end = isAddress ? text.firstIndex(of: "]").map({ text.index(after: $0) }) : text.firstIndex(of: ":") ?? text.endIndex
        else { return nil }
        let (name, rest) = (text[..<end], text[end...])
        guard !name.isEmpty, rest.isEmpty || (rest.first == ":" && UInt16(rest.dropFirst()) != nil) else { return nil }
        return String(name)
    }

    /// Returns the port in a Host header, or nil if it has none.
    static func port(in host: String) -> UInt16? {
        guard name(in: host) != nil, let colon = host.lastIndex(of: ":") else { return nil }
        // The result is nil for text in brackets.
        return UInt16(host[host.index(after: colon)...])
    }

    /// Whether a request was made by the console's own page, or by no page at all. `changes`: the browser must have stated the origin.
    func isOwn(origin: [String], host: String?, site: String?, changes: Bool) -> Bool {
        guard let host else { return false }
        if let site, site != "same-origin" { return false }
        if origin.isEmpty { return !changes }
        return origin.count == 1 && origin[0].lowercased() == "\(scheme)://\(host.lowercased())"
    }
}
