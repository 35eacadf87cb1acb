import GrantModel
import Testing

@testable import GrantTerminal

@Suite struct TextTests {
    @Test("The display width of a text counts terminal columns")
    func columnsAreThoseOfATerminal() {
        #expect(DisplayWidth.encoding == .utf8)
        #expect(DisplayWidth.of("abc") == 3)
        #expect(DisplayWidth.of("日本") == 4)
        #expect(DisplayWidth.of("e\u{301}") == 1)
        #expect(DisplayWidth.of("") == 0)
    }

    @Test("A text is cut at columns and never within a character")
    func textIsCutAtColumnsAndNeverWithinACharacter() {
        #expect(DisplayWidth.cut("abcdef", to: 6) == "abcdef")
        #expect(DisplayWidth.cut("abcdef", to: 5) == "abcd…")
        #expect(DisplayWidth.cut("日本語", to: 5) == "日本…")
        #expect(DisplayWidth.cut("日本語", to: 4) == "日…")
        #expect(DisplayWidth.cut("日本語", to: 1) == "…")
        #expect(DisplayWidth.cut("ab", to: 0) == "")
        #expect(DisplayWidth.cutStart("/a/b/c", to: 4) == "…b/c")
        #expect(DisplayWidth.cutStart("日本語", to: 4) == "…語")
        #expect(DisplayWidth.cutStart("xe\u{301}yz", to: 3) == "…yz")
        #expect(DisplayWidth.fitted("日本", to: 5) == "日本 ")
    }

    @Test("Characters without width are replaced in terminal text")
    func whatHasNoWidthIsReplaced() {
        #expect(DisplayWidth.printable("a\u{1B}b\u{9B}c") == "a\u{FFFD}b\u{FFFD}c")
        #expect(DisplayWidth.printable("日é") == "日é")
    }

    @Test("Control characters and invisible characters are escaped in terminal text")
    func controlCharactersAreWrittenOut() {
        #expect(VisibleText.of(Array("a\u{1B}[31m\n\u{202E}".utf8) + [0xFF]) == "a\\x1b[31m\\n\\u{202e}\\xff")
        #expect(VisibleText.of("a b\u{A0}\u{200B}\u{3164}\u{E0041}é日") == "a b\\u{a0}\\u{200b}\\u{3164}\\u{e0041}é日")
    }

    @Test("Leading and repeated blanks in a name are escaped")
    func ofNamesBlanksThatNobodySeesAreWrittenOutAsWell() {
        #expect(VisibleText.name("a b") == "a b")
        #expect(VisibleText.name(" a  b ") == "\\x20a \\x20b\\x20")
        #expect(VisibleText.name("\\x20") == "\\\\x20")
        #expect(VisibleText.cut("e\u{301}\u{301}x", to: 2) == "e\u{301}")
    }

    @Test("A line of the terminal is cut and split at a width")
    func aLineIsCutWhereItEnds() {
        let line = Line([Span("abc", .bold), Span("日本")])
        #expect(line.width == 7)
        #expect(line.cut(to: 7) == line)
        #expect(line.cut(to: 6).text == "abc日…")
        #expect(line.cut(to: 3).text == "ab…")
        #expect(Line([Span("abc"), Span("")]).cut(to: 3).text == "abc")
        #expect(Line.split(Line("left"), Line("right"), columns: 12).text == "left   right")
        #expect(Line.split(Line("a long one"), Line("right"), columns: 12).text == "a lon… right")
        #expect(Line("ab").styled(.reverse, columns: 5).text == "ab   ")
    }

    @Test("A terminal frame keeps its head and drops its foot first")
    func aFrameKeepsItsHeadAndGivesUpItsFootFirst() {
        let (head, body, foot) = ([Line("head")], [Line("1"), Line("2"), Line("3")], [Line("f1"), Line("f2")])
        let text = { (rows: Int) in Frame(head: head, body: body, foot: foot, size: Size(rows: rows, columns: 9)).text }
        #expect(text(7) == "head\n1\n2\n3\n\nf1\nf2")
        #expect(text(4) == "head\n1\nf1\nf2")
        #expect(text(3) == "head\n1\nf2")
        #expect(text(2) == "head\n1")
        #expect(text(0) == "")
    }
}
