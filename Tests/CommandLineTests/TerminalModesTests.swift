import Testing

@testable import grantfs_sandbox

@Suite struct TerminalModesTests {
    private func modes(_ output: String...) -> String {
        var modes = TerminalModes()
        for part in output { modes.read(Array(part.utf8)) }
        return modes.on
    }

    private let plain = "\u{1B}[<1u"

    @Test("Modes that a program has set are set again")
    func setAgain() {
        #expect(modes("text") == plain)
        #expect(modes("\u{1B}[?2004h\u{1B}[?1000;1006h") == "\u{1B}[?1000;1006;2004h" + plain)
        #expect(modes("\u{1B}[?2004h", "\u{1B}[?2004l") == plain)
        #expect(modes("\u{1B}[?25l\u{1B}=\u{1B}[>4;2m") == plain + "\u{1B}[>4;2m\u{1B}=\u{1B}[?25l")
        #expect(modes("\u{1B}[?1h\u{1B}[?25l\u{1B}c") == plain)
    }

    @Test("A sequence may come in parts, and others change nothing")
    func parts() {
        #expect(modes("\u{1B}", "[", "?20", "04", "h") == "\u{1B}[?2004h" + plain)
        #expect(
            modes("\u{1B}[?2004\u{18}h", "\u{1B}[2004h", "\u{1B}[?7777h", "\u{1B}[" + String(repeating: "1", count: 1000) + "h") == plain)
        #expect(modes("\u{1B}[?9" + String(repeating: ";", count: 59) + ";1000h") == plain)
        #expect(modes("\u{1B}[?10\n00h") == "\u{1B}[?1000h" + plain)
        #expect(modes("\u{1B}[?99999999999999999999h", "\u{1B}[?;;h") == plain)
    }
}
