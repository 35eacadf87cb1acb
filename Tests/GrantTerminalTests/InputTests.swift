import CGrantNcurses
import Testing

@testable import GrantTerminal

@Suite struct InputTests {
    @Test("Characters and key codes are mapped to keys")
    func keysAreToldApart() {
        #expect(Key(character: 13) == .enter)
        #expect(Key(character: 27) == .escape)
        #expect(Key(character: 127) == .backspace)
        #expect(Key(character: 3) == .control("c"))
        #expect(Key(character: 0x65E5) == .character("日"))
        #expect(Key(character: 0x9B) == nil)
        #expect(Key(character: 0x202E) == nil)
        #expect(Key(code: UInt32(KEY_DOWN)) == .down)
        #expect(Key(code: UInt32(KEY_F0) + 1) == .function(1))
        #expect(Key(code: 0o777) == nil)
    }

    @Test("The line editor inserts and deletes")
    func aLineIsWrittenAndMended() {
        var line = LineEditor("ac")
        hit(&line, .left, .character("b"), .end, .character("日"))
        #expect(line.text == "abc日")
        hit(&line, .home, .delete, .right, .backspace)
        #expect(line.text == "c日")
        hit(&line, .end, .control("u"), .backspace, .delete)
        #expect(line.text == "")
        let others = [Key.enter, .up].filter { line.handle($0) }
        #expect(others.isEmpty)
    }

    private func hit(_ line: inout LineEditor, _ keys: Key...) {
        for key in keys {
            let isTaken = line.handle(key)
            #expect(isTaken)
        }
    }

    @Test("The cursor of a long line in the line editor stays visible")
    func theCursorOfALongLineIsToBeSeen() {
        var line = LineEditor("abcdefghij")
        #expect(line.shown(columns: 6) == (text: "…ghij", cursor: 5))
        _ = line.handle(.home)
        #expect(line.shown(columns: 6) == (text: "abcde…", cursor: 0))
        #expect(LineEditor("日本").shown(columns: 10) == (text: "日本", cursor: 4))
    }

    @Test("The window of a list follows the selection")
    func aWindowFollowsWhatIsSelected() {
        var window = ListWindow()
        for _ in 0..<5 { _ = window.handle(.down, count: 10, height: 3) }
        #expect(window.selected == 5)
        #expect(window.rows(count: 10, height: 3) == 3..<6)
        _ = window.handle(.end, count: 10, height: 3)
        #expect(window.rows(count: 10, height: 3) == 7..<10)
        _ = window.handle(.pageUp, count: 10, height: 3)
        #expect(window.selected == 7)
        window.show(count: 2, height: 3)
        #expect(window.selected == 1)
        #expect(window.rows(count: 2, height: 3) == 0..<2)
        window.show(count: 0, height: 3)
        #expect(window.rows(count: 0, height: 3).isEmpty)
        let isTaken = window.handle(.enter, count: 0, height: 3)
        #expect(!isTaken)
    }
}
