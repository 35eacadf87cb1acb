import Testing

@testable import grantfs_sandbox

@Suite struct LookedUpNamesTests {
    @Test("The observer of a run keeps a bounded number of names and bytes, and counts the others")
    func bounds() {
        var names = LookupObserver.Names()
        let most = LookupObserver.Names.mostNames
        for number in 0..<most + 100 { names.add(Array("/home/\(number)".utf8), isChange: false) }
        names.add(Array("/home/0".utf8), isChange: true)
        #expect(names.known.count == most && names.others == 100)
        #expect(names.known[Array("/home/0".utf8)]?.total == 2)
        var long = LookupObserver.Names()
        for number in 0..<most { long.add(Array("/\(number)/".utf8) + [UInt8](repeating: 0x41, count: 4000), isChange: true) }
        let bytes = long.known.keys.reduce(0) { $0 + $1.count }
        #expect(bytes <= LookupObserver.Names.mostBytes && long.known.count + Int(long.others) == most)
    }

    @Test(
        "Names of keys, browsers, shells and grantfs are private in any case",
        arguments: [
            ".ssh/x", ".SSH", ".netrc", ".config/gh/hosts.yml", ".mozilla/firefox", ".bashrc", ".config/grantfs/profiles/x",
            "src/server.pem", "src/.env", "src/.env.local", ".config/tool/access_token", ".cargo/credentials.toml",
        ])
    func areKept(_ path: String) {
        #expect(PrivateNames.reason(path.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) }) != nil)
    }

    @Test("A profile quotes visible names, and no others", arguments: ["a\nb", "a\u{1b}", "a\u{202e}b", "a\tb", "a\u{7f}"])
    func quotes(_ name: String) {
        #expect(ProfileText.quoted(Array(name.utf8)) == nil && ProfileText.quoted([0xFF]) == nil)
        #expect(ProfileText.quoted(Array("a\"b\\ü".utf8)) == #""a\"b\\ü""#)
    }
}
