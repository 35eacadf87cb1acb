import GrantModel
import Testing

@testable import GrantProxy

@Suite("Host rules")
struct HostRuleTests {
    private func permits(_ rule: String, _ target: String, _ port: UInt16) throws -> Bool {
        guard let host = TargetHost(target) else { return false }
        return HostPolicy(rules: [try HostRule(rule)]).permits(host, port: port)
    }

    @Test(
        "A host rule permits the hosts it names on ports 80 and 443 by default",
        arguments: [
            ("example.org", "example.org", 443, true), ("example.org", "EXAMPLE.org.", 80, true),
            ("example.org", "example.org", 8080, false),
            ("example.org:8443", "example.org", 8443, true), ("example.org:8443", "example.org", 443, false),
            ("example.org", "www.example.org", 443, false), ("example.org", "example.org.evil.net", 443, false),
            ("example.org", "notexample.org", 443, false), ("*.example.org", "a.b.example.org", 443, true),
            ("*.example.org", "example.org", 443, false), ("*.example.org", "evilexample.org", 443, false),
            ("10.0.0.5:8080", "10.0.0.5", 8080, true), ("10.0.0.5:8080", "::ffff:10.0.0.5", 8080, true),
            ("10.0.0.5:8080", "10.0.0.6", 8080, false), ("[::1]:80", "[0:0::1]", 80, true), ("::1", "::1", 443, true),
        ] as [(String, String, UInt16, Bool)])
    func permits(rule: String, target: String, port: UInt16, answer: Bool) throws {
        #expect(try permits(rule, target, port) == answer)
    }

    @Test(
        "A denied host is refused at every port, whatever other rules permit",
        arguments: [
            ("www.example.org", 443, true), ("evil.example.org", 443, false), ("EVIL.example.org.", 8443, false),
            ("a.evil.example.org", 443, true), ("b.c.example.org", 443, false),
        ] as [(String, UInt16, Bool)])
    func denied(target: String, port: UInt16, answer: Bool) throws {
        let rules = ["*.example.org", "evil.example.org:8443", "!evil.example.org", "!*.c.example.org", "!other.example.org"]
        let policy = HostPolicy(rules: try rules.map { (text) throws(GrantError) in try HostRule(text) })
        #expect(policy.permits(try #require(TargetHost(target)), port: port) == answer)
    }

    @Test("A denied address is not reached by a name")
    func deniedAddress() throws {
        let rules = try ["localhost:80", "example.org", "!127.0.0.1", "!93.184.216.34"].map { (text) throws(GrantError) in
            try HostRule(text)
        }
        let policy = HostPolicy(rules: rules)
        for (text, isPermitted) in [("127.0.0.1", false), ("::1", true), ("93.184.216.34", false), ("93.184.216.35", true)] {
            #expect(policy.permits(try #require(NetworkAddress(text)), port: 80, own: []) == isPermitted, "\(text)")
        }
    }

    @Test(
        "A malformed host rule is refused",
        arguments: [
            "*", "*.", "", "a b", "example.org:0", "example.org:65536", "example.org:", "*.10.0.0.1", "exam_ple..org", "[::1", "fe80::1%lo",
        ])
    func malformed(text: String) { #expect(throws: GrantError.self) { try HostRule(text) } }

    @Test(
        "A name that a resolver reads as an address is refused",
        arguments: ["127.1", "2130706433", "0x7f000001", "0x7f.1", "127.0.0.01", "1.2.3.4.5", "a\u{0}b", "exämple.org", "user@example.org"])
    func forms(text: String) { #expect(TargetHost(text) == nil) }

    @Test(
        "A proxied name never leads to a local or private address",
        arguments: [
            "127.0.0.1", "127.255.0.1", "0.0.0.0", "10.1.2.3", "100.64.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255",
            "192.168.1.1",
            "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1::", "::127.0.0.1",
        ])
    func special(text: String) throws {
        let address = try #require(NetworkAddress(text))
        let policy = HostPolicy(rules: [try HostRule("example.org")])
        #expect(!policy.permits(address, port: 443, own: []))
        let listed = HostPolicy(rules: [try HostRule("[\(text)]".contains(":") ? "[\(text)]:443" : "\(text):443")])
        #expect(listed.permits(address, port: 443, own: []), "unless it is listed itself")
        #expect(!listed.permits(address, port: 80, own: []))
    }

    @Test("The name localhost permits the two addresses of the loopback at its port")
    func loopback() throws {
        let policy = HostPolicy(rules: [try HostRule("localhost:8080")])
        for text in ["127.0.0.1", "::1"] {
            let address = try #require(NetworkAddress(text))
            #expect(policy.permits(address, port: 8080, own: [address]))
            #expect(!policy.permits(address, port: 80, own: [address]))
        }
        #expect(!policy.permits(try #require(NetworkAddress("127.0.0.2")), port: 8080, own: []))
    }

    @Test("A host rule permits internet addresses except those of this machine")
    func global() throws {
        let policy = HostPolicy(rules: [try HostRule("example.org")])
        for text in ["93.184.216.34", "172.32.0.1", "2606:2800:220:1::1", "::ffff:93.184.216.34"] {
            let address = try #require(NetworkAddress(text))
            #expect(policy.permits(address, port: 443, own: []), "\(text)")
            #expect(!policy.permits(address, port: 443, own: [address]), "\(text)")
        }
    }
}
