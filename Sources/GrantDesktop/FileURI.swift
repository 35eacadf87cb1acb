import GrantModel

/// URIs of files: RFC 8089.
public enum FileURI {
    /// Returns the path of a local `file:` URI, percent-decoded, or nil for anything else.
    public static func path(_ uri: [UInt8]) -> [UInt8]? {
        let scheme = Array("file:".utf8)
        guard uri.count > scheme.count, String(decoding: uri.prefix(scheme.count), as: UTF8.self).lowercased() == "file:" else {
            return nil
        }
        var rest = uri[scheme.count...]
        if rest.starts(with: Array("//".utf8)) {
            rest = rest.dropFirst(2)
            let host = rest.prefix { $0 != UInt8(ascii: "/") }
            guard host.isEmpty || String(decoding: host, as: UTF8.self).lowercased() == "localhost" else { return nil }
            rest = rest.dropFirst(host.count)
        }
        // A query or fragment is not part of a path.
        guard rest.first == UInt8(ascii: "/"), !rest.contains(UInt8(ascii: "?")), !rest.contains(UInt8(ascii: "#")) else { return nil }
        return decoded(Array(rest))
    }

    private static func decoded(_ bytes: [UInt8]) -> [UInt8]? {
        var (result, index) = ([UInt8](), 0)
        while index < bytes.count {
            if bytes[index] == UInt8(ascii: "%") {
                guard index + 2 < bytes.count, let high = Hexadecimal.value(of: bytes[index + 1]),
                    let low = Hexadecimal.value(of: bytes[index + 2]), high << 4 | low != 0
                else { return nil }
                result.append(high << 4 | low)
                index += 3
            } else {
                result.append(bytes[index])
                index += 1
            }
        }
        return result
    }
}
