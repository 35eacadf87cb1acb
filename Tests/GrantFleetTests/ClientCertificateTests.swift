import Foundation
@testable import GrantFleet
import GrantModel
import TestSupport
import Testing

@Suite(.enabled(if: Machine.offers("openssl"), "\(Machine.needs("openssl"))")) struct ClientCertificateTests {
    @Test("The serial number and the expiry of a certificate are those that openssl prints", arguments: [2, 20_000])
    func fields(days: Int) throws {
        let fixture = try MountFixture()
        defer { fixture.finish() }
        let file = fixture.base + "/certificate.pem"
        try Command.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "\(days)", "-subj",
            "/O=x", "-keyout", fixture.base + "/key", "-out", file,
        ]).orThrow()
        let pem = try String(contentsOfFile: file, encoding: .utf8)
        let printed = try Command.run(["openssl", "x509", "-noout", "-serial", "-enddate", "-dateopt", "iso_8601", "-in", file])
            .orThrow().text
        let serial = try #require(ClientCertificate.serial(pem))
        #expect(printed.contains("serial=\(serial)\n"), "\(printed)")
        let expiry = try #require(ClientCertificate.expiry(pem).map { Timestamp.text($0) }).replacingOccurrences(of: "T", with: " ")
        #expect(printed.contains("notAfter=\(expiry)\n"), "\(printed)")
        #expect(ClientCertificate.expiry("nonsense") == nil && ClientCertificate.serial("nonsense") == nil)
    }
}
