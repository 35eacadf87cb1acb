import Foundation
import GrantModel
import TestSupport
import Testing

@testable import GrantKit

@Suite struct DataThatIsNoBookmark {
    /// With a correct checksum, as an attacker who knows the format makes it.
    private func mended(_ bytes: [UInt8]) -> [UInt8] {
        let body = Array(bytes.dropLast(8))
        let checksum = SipHash(key0: 0x6772_616e_7466_7320, key1: 0x7572_6c62_6f6f_6b73)
        return body + withUnsafeBytes(of: checksum.hash(body).bigEndian) { Array($0) }
    }

    @Test("A truncated, changed, extended or empty bookmark is refused")
    func damaged() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            for options in [[], .withSecurityScope] as [URL.BookmarkCreationOptions] {
                let data = try url.bookmarkData(options: options)
                for count in 0..<data.count { #expect(bench.failure(data.prefix(count)) == .fileReadCorruptFile) }
                for index in data.indices {
                    var changed = data
                    changed[index] ^= 0x10
                    #expect(bench.failure(changed) == .fileReadCorruptFile)
                }
                #expect(bench.failure(data + [0]) == .fileReadCorruptFile)
            }
            #expect(bench.failure(Data()) == .fileReadCorruptFile)
        }
    }

    @Test("A bookmark forged without the store's key is refused")
    func forged() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        try bench.program {
            let bytes = Array(try url.bookmarkData(options: .withSecurityScope))
            #expect(bench.failure(Data(mended(bytes))) == nil)
            for index in bytes.indices.dropLast(8) {
                var changed = bytes
                changed[index] ^= 1
                #expect(bench.failure(Data(mended(changed))) == .fileReadCorruptFile, "byte \(index)")
            }
        }
    }

    @Test("A bookmark of another store is refused")
    func otherStore() throws {
        let (bench, other) = (try Bench(), try Bench())
        let url = try bench.granted("docs")
        try other.fixture.grantfs("grant", url.path).orThrow()
        let data = try other.program { try url.bookmarkData(options: .withSecurityScope) }
        bench.program { #expect(bench.failure(data) == .fileReadCorruptFile) }
        other.program { #expect(bench.failure(data) == nil) }
    }

    @Test("Malformed fields of a bookmark never crash the program", arguments: [0, 1, 2, 3])
    func nonsense(kind: Int) throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let data = try bench.program { try url.appendingPathComponent("note").bookmarkData(options: kind == 0 ? .withSecurityScope : []) }
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<500 {
            var bytes = Array(data)
            for _ in 0...kind { bytes[Int.random(in: 0..<bytes.count - 8, using: &generator)] = .random(in: 0...255, using: &generator) }
            let decoded = try? BookmarkData.decoded(mended(bytes)).data
            if let decoded { #expect(decoded.path.first == UInt8(ascii: "/")) }
        }
    }

    @Test("A bookmark with a name that leads upwards or elsewhere is refused")
    func upwards() throws {
        for below in ["..", "a/../../b", "a//b", "/etc", "a/", "."] {
            let data = BookmarkData(
                path: Array("/m/g".utf8), isDirectory: true,
                route: .view(name: Array("v".utf8), grant: Array("g".utf8), directory: 7, below: Array(below.utf8)))
            #expect(throws: GrantError.self) { try BookmarkData.decoded(data.encoded { _ in 0 }) }
        }
        let good = BookmarkData(
            path: Array("/m/g/a".utf8), isDirectory: true,
            route: .view(name: Array("v".utf8), grant: Array("g".utf8), directory: 7, below: Array("a".utf8)))
        #expect(try BookmarkData.decoded(good.encoded { _ in 0 }).data == good)
    }
}
