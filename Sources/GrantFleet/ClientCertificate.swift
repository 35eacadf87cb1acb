import GrantModel

/// Checks client certificates. With authentication enabled, etcd's gateway answers no request that comes with a certificate whose
/// subject has a common name.
public enum ClientCertificate {
    /// `.usage` if the first certificate of a PEM text has a common name, or is invalid.
    public static func check(_ pem: String) throws(GrantError) {
        guard let bytes = der(pem), let subject = subject(bytes) else {
            throw GrantError(.usage, "the client's certificate is none", cause: "it is no PEM text of one")
        }
        // 2.5.4.3, id-at-commonName.
        let name: [UInt8] = [0x06, 0x03, 0x55, 0x04, 0x03]
        let hasName = subject.indices.contains { subject[$0...].starts(with: name) }
        if hasName {
            throw GrantError(
                .usage, "the client's certificate cannot be used",
                cause: "its subject has a common name (CN), with which etcd's gateway refuses every request",
                advice: "have one signed without, such as with -subj /O=grantfs")
        }
    }

    private static func der(_ pem: String) -> [UInt8]? {
        var lines = pem.split(whereSeparator: \.isNewline).drop { !$0.hasPrefix("-----BEGIN CERTIFICATE-----") }
        guard lines.popFirst() != nil else { return nil }
        return Base64.bytes(lines.prefix { !$0.hasPrefix("-----END") }.map { $0.filter { !$0.isWhitespace } }.joined())
    }

    /// RFC 5280: Certificate { TBSCertificate { [0] version, serialNumber, signature, issuer, validity, subject, … } … }
    private static func subject(_ bytes: [UInt8]) -> [UInt8]? {
        guard let certificate = element(bytes[...]), let inner = element(certificate.contents) else { return nil }
        var rest = inner.contents
        if rest.first == 0xA0 {
            guard let version = element(rest) else { return nil }
            rest = version.rest
        }
        for _ in 0..<4 {
            guard let skipped = element(rest) else { return nil }
            rest = skipped.rest
        }
        return element(rest).map { Array($0.contents) }
    }

    /// Returns the contents of the first DER element, and what follows it.
    private static func element(_ bytes: ArraySlice<UInt8>) -> (contents: ArraySlice<UInt8>, rest: ArraySlice<UInt8>)? {
        var rest = bytes.dropFirst()
        guard !bytes.isEmpty, let first = rest.popFirst() else { return nil }
        var length = Int(first)
        if first >= 0x80 {
            let count = Int(first & 0x7F)
            guard (1...3).contains(count), rest.count >= count else { return nil }
            length = rest.prefix(count).reduce(0) { $0 << 8 | Int($1) }
            rest = rest.dropFirst(count)
        }
        guard length <= rest.count else { return nil }
        return (rest.prefix(length), rest.dropFirst(length))
    }
}
