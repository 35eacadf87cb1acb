import Testing

@testable import grantfs_sandbox

@Suite struct VisibleLinesTests {
    private func shown(_ parts: [String]) -> String {
        var lines = VisibleLines()
        return parts.map { lines.add($0.utf8) }.joined() + lines.end()
    }

    @Test("Visible lines keep their line ends and tabs")
    func linesAndTabsStay() {
        #expect(shown(["a\tb\n\nc"]) == "a\tb\n\nc")
        #expect(shown([]) == "")
        #expect(shown(["\n"]) == "\n")
    }

    @Test("Visible lines have their control characters escaped")
    func everythingElseThatWorksATerminalIsWrittenOut() {
        #expect(shown(["\u{1B}[2J\r\u{7}\u{9B}\u{202E}\u{7F}\n"]) == "\\x1b[2J\\r\\x07\\u{9b}\\u{202e}\\x7f\n")
    }

    @Test("Visible lines join a character that is split over two reads")
    func aCharacterThatComesInPartsIsOne() {
        var lines = VisibleLines()
        #expect(lines.add([0xE2, 0x80]) == "")
        #expect(lines.add([0xAE, 0x41, 0x0A, 0xC3]) == "\\u{202e}A\n")
        #expect(lines.add([0xA4]) == "")
        #expect(lines.end() == "ä")
        #expect(lines.end() == "")
    }

    @Test("Visible lines do not hold back an unterminated line")
    func aLineWithoutAnEndTakesNoMoreThanItsPart() {
        var lines = VisibleLines()
        var count = 0
        for _ in 0..<100 { count += lines.add(Array(repeating: 0x61, count: 10_000)).count }
        #expect(count > 900_000)
        #expect(count + lines.end().count == 1_000_000)
    }
}
