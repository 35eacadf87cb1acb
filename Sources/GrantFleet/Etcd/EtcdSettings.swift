import GrantModel
import GrantSystem

/// The address of etcd, and the client's credentials.
public struct EtcdSettings: Sendable, Equatable {
    /// `https://HOST:PORT`, without a trailing slash.
    public var endpoints: [String]
    /// PEM texts.
    public var authorities: String?
    public var certificate: String?
    public var key: String?
    public var user: String?
    public var password: String?

    public init(
        endpoints: [String], authorities: String? = nil, certificate: String? = nil, key: String? = nil, user: String? = nil,
        password: String? = nil
    ) {
        (self.endpoints, self.authorities, self.certificate, self.key) = (endpoints, authorities, certificate, key)
        (self.user, self.password) = (user, password)
    }

    /// Parses a comma-separated list of endpoints. One without a scheme gets `http://` if `isPlain`, else `https://`. `.usage`.
    public static func endpoints(of text: String) throws(GrantError) -> [String] {
        var result: [String] = []
        for word in text.split(separator: ",") {
            var endpoint = word.contains(part: "://") ? String(word) : "https://\(word)"
            while endpoint.hasSuffix("/") { endpoint.removeLast() }
            let rest = endpoint.drop { $0 != ":" }.dropFirst(3)
            guard endpoint.hasPrefix("https://") || endpoint.hasPrefix("http://"), !rest.isEmpty, !rest.contains("/"),
                !endpoint.utf8.contains(where: { $0 <= 0x20 || $0 >= 0x7F })
            else { throw GrantError(.usage, "invalid endpoint of etcd “\(word)”", advice: "https://HOST:2379, several with commas") }
            if !result.contains(endpoint) { result.append(endpoint) }
        }
        if result.isEmpty { throw GrantError(.usage, "no endpoint of etcd is named", advice: "--endpoints https://HOST:2379,…") }
        return result
    }
}
