import Foundation
import GrantModel
import Testing

@testable import GrantCommandLine
@testable import grantfs_sandbox
import GrantCommandSupport
@testable import grantfs

@Suite struct OutputTests {
    @Test("JSON output is one line that is parsed back, with null for an infinite number")
    func jsonIsJSON() throws {
        let text = "q\" b\\ n\n t\t z\u{0} esc\u{1B} del\u{7F} é 日本 \u{2028} \u{1F600} /"
        let value = JSON.object([
            ("text", .string(text)), ("null", .null), ("yes", .bool(true)), ("big", .unsigned(.max)), ("small", .integer(.min)),
            ("number", .number(1.25)), ("infinite", .number(.infinity)), ("huge", .number(1e300)),
            ("list", .array([.array([]), .object([])])),
        ])
        let read = try #require(try JSONSerialization.jsonObject(with: Data(value.text.utf8)) as? [String: Any])
        #expect(read["text"] as? String == text)
        #expect(read["null"] is NSNull)
        #expect((read["big"] as? NSNumber)?.uint64Value == .max)
        #expect((read["small"] as? NSNumber)?.int64Value == .min)
        #expect(read["number"] as? Double == 1.25)
        #expect(read["infinite"] is NSNull)
        #expect((read["list"] as? [Any])?.count == 2)
        #expect(!value.text.contains("\n"))
    }

    @Test("JSON output has the hex bytes of a name that is not UTF-8")
    func namesThatAreNoUTF8CarryTheirBytes() {
        #expect(JSON.object(JSON.members("name", [0x61, 0xFF])).text == "{\"name\":\"a\u{FFFD}\",\"nameHex\":\"61ff\"}")
        #expect(JSON.object(JSON.members("name", [0x61])).text == "{\"name\":\"a\"}")
    }

    @Test("Text for the terminal has its control characters escaped")
    func aTerminalGetsNoControlCharacters() {
        #expect(Terminal.visible(Array("a\u{1B}[31m\nb".utf8)) == "a\\x1b[31m\\nb")
        #expect(Terminal.visible([0x61, 0xFF, 0xC3, 0x62, 0xE2, 0x82]) == "a\\xff\\xc3b\\xe2\\x82")
        #expect(Terminal.visible(Array("é日\u{202E}".utf8)) == "é日\\u{202e}")
        #expect(Terminal.visible([]) == "")
    }

    @Test("The columns of a table are aligned by display width")
    func columnsAreAligned() {
        var table = Table(header: ["A", "B"])
        table.add(["long", "x"])
        table.add(["日", "y"])
        #expect(table.text(colour: false) == "A     B\nlong  x\n日    y")
        #expect(table.text(colour: true).hasPrefix("\u{1B}[1mA     B\u{1B}[0m\n"))
    }

    @Test("Only words near the wrong one are suggested")
    func onlyWhatIsNearIsSuggested() {
        let words = ["list", "log", "restore", "revoke", "remove"]
        #expect(Suggestion.nearest(to: "lsit", among: words) == "list")
        #expect(Suggestion.nearest(to: "revok", among: words) == "revoke")
        #expect(Suggestion.nearest(to: "resto", among: words) == "restore")
        #expect(Suggestion.nearest(to: "frobnicate", among: words) == nil)
        #expect(Suggestion.nearest(to: "", among: words) == nil)
        #expect(Suggestion.distance("ab", "ba") == 1)
        #expect(Suggestion.distance("", "abc") == 3)
    }

    @Test("`doctor` names the features that an old kernel lacks")
    func theDoctorSaysWhatTheKernelLacks() {
        #expect(KernelChecks.version(of: (6, 18)).level == .ok)
        for (release, words) in [
            ((5, 10), ["5.11", "6.2", "6.6"]), ((6, 1), ["6.2", "MADV_POPULATE_READ"]), ((6, 8), ["MADV_POPULATE_READ"]),
            ((6, 12), ["6.16", "6.18"]), ((6, 17), ["6.18"]), ((7, 3), ["EIO"]),
        ] {
            let finding = KernelChecks.version(of: release)
            #expect(finding.level == .note && words.allSatisfy(finding.message.contains), "\(finding)")
        }
        for release in [(5, 10), (6, 9), (6, 18)] {
            #expect(!KernelChecks.version(of: release).message.contains("MADV_POPULATE_READ"), "\(release)")
        }
        #expect(!KernelChecks.version(of: (6, 17)).message.contains("6.16"))
    }

    @Test("`doctor` reports that kernels before 6.9 lack filesystem UUIDs")
    func theDoctorSaysWhatAnOldKernelDoesNotTellOfFilesystems() {
        let old = KernelChecks.identities(of: (6, 8))
        #expect(old.level == .note && old.message.contains("FS_IOC_GETFSUUID") && old.advice?.contains("Linux 6.9") == true)
        #expect(KernelChecks.identities(of: (5, 10)).level == .note)
        #expect(KernelChecks.identities(of: (6, 9)).level == .ok && KernelChecks.identities(of: (7, 0)).level == .ok)
    }
}
