/// The head of a request to a proxy (RFC 9110, RFC 9112), up to the empty line.
struct RequestHead {
    enum Failure: Error, Equatable {
        case malformed
        /// The request has a body of unknown length.
        case lengthRequired
    }

    let isConnect: Bool
    let host: TargetHost
    let port: UInt16
    /// The length of the body that follows.
    let contentLength: Int
    /// The head to send to the server. Its Host is the target of the request, not the client's
    /// header.
    let forwarded: [UInt8]

    /// The maximum length of a head.
    static let maxLength = 32 << 10

    /// Returns the length of the head with its empty line, or nil while it is incomplete. `known`
    /// is the number of bytes searched before without success, so that a client that sends one byte
    /// at a time does not cost a full search each time.
    static func length(in bytes: [UInt8], known: Int = 0) -> Int? {
        guard bytes.count >= 4 else { return nil }
        return (max(known + 1, 4)..<bytes.count + 1).first {
            bytes[$0 - 4] == 13 && bytes[$0 - 3] == 10 && bytes[$0 - 2] == 13 && bytes[$0 - 1] == 10
        }
    }

    init(_ bytes: some Collection<UInt8>) throws(Failure) {
        let text = Array(bytes)
        // Refuses bytes that some servers take for the end of a line and others do not.
        guard text.allSatisfy({ $0 >= 0x20 && $0 < 0x7F || $0 == 13 || $0 == 10 || $0 == 9 || $0 >= 0x80 }),
            text.suffix(4) == [13, 10, 13, 10]
        else { throw .malformed }
        var lines = text.dropLast(4).split(separator: 10, omittingEmptySubsequences: false).map { Array($0) }
        for index in lines.indices {
            if index < lines.count - 1 {
                guard lines[index].last == 13 else { throw .malformed }
                lines[index].removeLast()
            }
            if lines[index].contains(13) { throw .malformed }
        }
        let words = lines[0].split(separator: 0x20, omittingEmptySubsequences: false).map { String(decoding: $0, as: UTF8.self) }
        guard words.count == 3, RequestHead.isToken(words[0]), words[2] == "HTTP/1.1" || words[2] == "HTTP/1.0" else { throw .malformed }
        let fields = try lines.dropFirst().map { (line) throws(Failure) in try RequestHead.field(line) }
        isConnect = words[0] == "CONNECT"
        let place: (authority: Substring, path: String)
        if isConnect {
            place = (words[1][...], "")
        } else {
            guard words[1].prefix(7).lowercased() == "http://" else { throw .malformed }
            let rest = words[1].dropFirst(7)
            let end = rest.firstIndex { $0 == "/" || $0 == "?" || $0 == "#" } ?? rest.endIndex
            let path = String(rest[end...].prefix { $0 != "#" })
            place = (rest[..<end], path.hasPrefix("/") ? path : "/" + path)
        }
        guard let (host, port) = TargetHost.split(place.authority), let port = port ?? (isConnect ? nil : 80) else { throw .malformed }
        (self.host, self.port) = (host, port)
        contentLength = isConnect ? 0 : try RequestHead.length(of: fields)
        forwarded = isConnect ? [] : RequestHead.forwarded(words[0], place.path, host, port, fields)
    }

    private typealias Field = (name: String, value: [UInt8])

    private static func field(_ line: [UInt8]) throws(Failure) -> Field {
        guard let colon = line.firstIndex(of: 0x3A) else { throw .malformed }
        let name = String(decoding: line[..<colon], as: UTF8.self)
        // A line that begins with a space continues the one before, or not, depending on the server.
        guard isToken(name) else { throw .malformed }
        return (name, Array(line[(colon + 1)...].drop { $0 == 0x20 || $0 == 9 }))
    }

    private static func isToken(_ text: String) -> Bool {
        !text.isEmpty
            && text.utf8.allSatisfy {
                (0x30...0x39).contains($0) || (0x41...0x5A).contains($0) || (0x61...0x7A).contains($0)
                    || "!#$%&'*+-.^_`|~".utf8.contains($0)
            }
    }

    private static func length(of fields: [Field]) throws(Failure) -> Int {
        if fields.contains(where: { $0.name.lowercased() == "transfer-encoding" }) { throw .lengthRequired }
        let values = fields.filter { $0.name.lowercased() == "content-length" }.map { String(decoding: $0.value, as: UTF8.self) }
        guard let first = values.first else { return 0 }
        guard values.count == 1, first.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let length = Int(first) else { throw .malformed }
        return length
    }

    /// Keeps the fields that are meant for the server, and asks for one request a connection.
    private static func forwarded(_ method: String, _ path: String, _ host: TargetHost, _ port: UInt16, _ fields: [Field]) -> [UInt8] {
        var dropped: Set<String> = ["host", "connection", "keep-alive", "te", "trailer", "upgrade"]
        for field in fields where field.name.lowercased() == "connection" {
            let names = String(decoding: field.value, as: UTF8.self).split(separator: ",").map { $0.filter { $0 != " " && $0 != "\t" } }
            dropped.formUnion(names.map { $0.lowercased() }.filter { $0 != "content-length" })
        }
        var text = Array("\(method) \(path) HTTP/1.1\r\nHost: \(host)\(port == 80 ? "" : ":\(port)")\r\n".utf8)
        for field in fields where !dropped.contains(field.name.lowercased()) && !field.name.lowercased().hasPrefix("proxy-") {
            text += Array("\(field.name): ".utf8) + field.value + [13, 10]
        }
        return text + Array("Connection: close\r\n\r\n".utf8)
    }
}
