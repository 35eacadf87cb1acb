/// Which requests come from the console's own page, by what a browser says of them and no page can change.
struct Origins: Sendable {
    /// `http` or `https`.
    let scheme: String
    /// By which the console may be reached, small letters: an address, with brackets where it has colons, or a name.
    let names: Set<String>

    init(isSecure: Bool, names: [String]) {
        scheme = isSecure ? "https" : "http"
        self.names = Set(names.map { $0.lowercased() })
    }

    /// Whether the host that a browser believes it speaks to is this one: a name that somebody else has led here is not among them (DNS rebinding). The port may be another, as it is through a
    /// tunnel; what counts is that the page comes from the same.
    func knows(host: String?) -> Bool {
        guard let host, let name = Origins.name(in: host) else { return false }
        return names.contains(name)
    }

    /// `NAME`, `NAME:PORT`, `[ADDRESS]:PORT`; nil for everything else.
    static func name(in host: String) -> String? {
        let text = host.lowercased()
        let isAddress = text.hasPrefix("[")
        guard let end = isAddress ? text.firstIndex(of: "]").map({ text.index(after: $0) }) : text.firstIndex(of: ":") ?? text.endIndex
        else { return nil }
        let (name, rest) = (text[..<end], text[end...])
        guard !name.isEmpty, rest.isEmpty || (rest.first == ":" && UInt16(rest.dropFirst()) != nil) else { return nil }
        return String(name)
    }

    /// Whether a request was made by the console's own page, or by no page at all. `changes`: then the browser must have said so.
    func isOwn(origin: [String], host: String?, site: String?, changes: Bool) -> Bool {
        guard let host else { return false }
        if let site, site != "same-origin" { return false }
        if origin.isEmpty { return !changes }
        return origin.count == 1 && origin[0].lowercased() == "\(scheme)://\(host.lowercased())"
    }
}
