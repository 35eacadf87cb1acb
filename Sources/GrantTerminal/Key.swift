import CGrantNcurses
import GrantModel

/// A key press.
public enum Key: Hashable, Sendable {
    /// A printable character.
    case character(Unicode.Scalar)
    /// A letter with Control held, in lower case.
    case control(Unicode.Scalar)
    case enter
    case escape
    case tab
    case backTab
    case backspace
    case delete
    case insert
    case up
    case down
    case left
    case right
    case home
    case end
    case pageUp
    case pageDown
    case function(Int)

    /// Takes a character that the terminal sent. The result is nil if it is none of these keys.
    init?(character code: UInt32) {
        switch code {
        case 0x0D, 0x0A: self = .enter
        case 0x1B: self = .escape
        case 0x09: self = .tab
        case 0x08, 0x7F: self = .backspace
        case 0x01...0x1A:
            guard let letter = Unicode.Scalar(code + 0x60) else { return nil }
            self = .control(letter)
        default:
            guard let scalar = Unicode.Scalar(code), VisibleText.isPlain(scalar) else { return nil }
            self = .character(scalar)
        }
    }

    /// Takes a key code of curses.h. The result is nil if it is none of these keys.
    init?(code: UInt32) {
        switch Int32(bitPattern: code) {
        case KEY_ENTER: self = .enter
        case KEY_BACKSPACE: self = .backspace
        case KEY_BTAB: self = .backTab
        case KEY_DC: self = .delete
        case KEY_IC: self = .insert
        case KEY_UP: self = .up
        case KEY_DOWN: self = .down
        case KEY_LEFT: self = .left
        case KEY_RIGHT: self = .right
        case KEY_HOME: self = .home
        case KEY_END: self = .end
        case KEY_PPAGE: self = .pageUp
        case KEY_NPAGE: self = .pageDown
        case KEY_CANCEL: self = .escape
        case (KEY_F0 + 1)...(KEY_F0 + 12): self = .function(Int(Int32(bitPattern: code) - KEY_F0))
        default: return nil
        }
    }
}
