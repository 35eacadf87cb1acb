import GrantModel

/// Checks client certificates. With authentication enabled, etcd's gateway answers no request that comes with a certificate whose
/// subject has a common name.
public enum ClientCertificate {
    /// Throws `.usage` if the first certificate of a PEM text has a common name, or is invalid.
    public static func check(_ pem: String) throws(GrantError) {
        guard let bytes = der(pem), let subject = subject(bytes) else {
            throw GrantError(.usage, "the client's certificate is invalid", cause: "it is not PEM text")
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

    /// Returns the serial number of the first certificate of a PEM text in hexadecimal, as `openssl
    /// x509 -serial` prints it, or nil if the text is invalid.
    static func serial(_ pem: String) -> String? {
        guard let bytes = der(pem), let fields = fields(bytes), let number = element(fields) else { return nil }
        return number.contents.drop { $0 == 0 }.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined()
    }

    /// Returns when the first certificate of a PEM text expires, or nil if the text is invalid.
    public static func expiry(_ pem: String) -> Instant? {
        // The validity (notBefore, notAfter) follows the serial number, the signature and the
        // issuer.
        guard let bytes = der(pem), let fields = fields(bytes), let validity = field(3, of: fields),
            let start = element(validity), let end = element(start.rest), let tag = start.rest.first
        else { return nil }
        // UTCTime has two digits of the year, which mean 1950 to 2049.
        var digits = end.contents.prefix { (0x30...0x39).contains($0) }.map { Int64($0 - 0x30) }
        if tag == 0x17, let first = digits.first { digits = (first < 5 ? [2, 0] : [1, 9]) + digits }
        guard digits.count == 14 else { return nil }
        let number = { (from: Int, count: Int) in digits[from..<from + count].reduce(0) { $0 * 10 + $1 } }
        guard let days = Timestamp.days(year: number(0, 4), month: number(4, 2), day: number(6, 2)) else { return nil }
        return Instant(seconds: days * 86_400 + number(8, 2) * 3_600 + number(10, 2) * 60 + number(12, 2))
    }

    /// Returns the contents of a field by its number, from 0.
    private static func field(_ number: Int, of fields: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        var rest = fields
        for _ in 0..<number {
            guard let skipped = element(rest) else { return nil }
            rest = skipped.rest
        }
        return element(rest)?.contents
    }

    private static func der(_ pem: String) -> [UInt8]? {
        var lines = pem.split(whereSeparator: \.isNewline).drop { !$0.hasPrefix("-----BEGIN CERTIFICATE-----") }
        guard lines.popFirst() != nil else { return nil }
        return Base64.bytes(lines.prefix { !$0.hasPrefix("-----END") }.map { $0.filter { !$0.isWhitespace } }.joined())
    }

    /// RFC 5280: Certificate { TBSCertificate { [0] version, serialNumber, signature, issuer, validity, subject, … } … }
    private static func subject(_ bytes: [UInt8]) -> [UInt8]? {
        fields(bytes).flatMap { field(4, of: $0) }.map { Array($0) }
    }

    /// Returns the certificate from its serial number on.
    private static func fields(_ bytes: [UInt8]) -> ArraySlice<UInt8>? {
        guard let certificate = element(bytes[...]), let inner = element(certificate.contents) else { return nil }
        guard inner.contents.first == 0xA0 else { return inner.contents }
        return element(inner.contents)?.rest
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
