/// The modes of a terminal that a program has set by its output, so that they can be set again after a question.
///
/// Terminals cannot be relied on to save them (XTSAVE).
struct TerminalModes {
    private enum State { case text, escape, sequence }

    /// Keys of the cursor, the mouse, the focus and pastes.
    private static let reported: [Int] = [1, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004]
    private static let longest = 64

    private var state = State.text
    private var parameters: [UInt8] = []
    private var isSet = Set<Int>()
    private var hidesCursor = false
    private var hasKeypad = false
    private var otherKeys = 0

    /// Reads a part of the output.
    mutating func read(_ bytes: [UInt8]) {
        for byte in bytes {
            switch (state, byte) {
            case (_, 0x1B): state = .escape
            case (_, 0x18), (_, 0x1A): state = .text
            case (.escape, UInt8(ascii: "[")): (state, parameters) = (.sequence, [])
            case (.escape, UInt8(ascii: "=")): (state, hasKeypad) = (.text, true)
            case (.escape, UInt8(ascii: ">")): (state, hasKeypad) = (.text, false)
            case (.escape, UInt8(ascii: "c")): self = TerminalModes()
            case (.escape, _): state = .text
            case (.sequence, 0x20...0x3F):
                // One more than is read, by which too long ones are known.
                if parameters.count <= Self.longest { parameters.append(byte) }
            case (.sequence, 0x00..<0x20): continue
            case (.sequence, _):
                state = .text
                end(byte)
            case (.text, _): continue
            }
        }
    }

    private mutating func end(_ final: UInt8) {
        if parameters.count > Self.longest { return }
        let isOn = final == UInt8(ascii: "h")
        let numbers = parameters.dropFirst().split(separator: UInt8(ascii: ";")).map { Int(String(decoding: $0, as: UTF8.self)) ?? 0 }
        switch (parameters.first, final) {
        case (UInt8(ascii: "?"), UInt8(ascii: "h")), (UInt8(ascii: "?"), UInt8(ascii: "l")):
            for number in numbers {
                if number == 25 { hidesCursor = !isOn }
                if !Self.reported.contains(number) { continue }
                if isOn { isSet.insert(number) } else { isSet.remove(number) }
            }
        case (UInt8(ascii: ">"), UInt8(ascii: "m")):
            if numbers.first == 4 { otherKeys = numbers.count > 1 ? numbers[1] : 0 }
        case (UInt8(ascii: "!"), UInt8(ascii: "p")): (hidesCursor, hasKeypad) = (false, false)
        default: return
        }
    }

    /// Turns everything off that makes keys other than they are, and keeps the protocol of kitty's keys for `on`.
    static let off = "\u{1B}[?" + reported.map { "\($0)" }.joined(separator: ";") + "l\u{1B}[>0u\u{1B}[>4;0m\u{1B}>"

    /// Sets the modes again.
    var on: String {
        let modes = isSet.sorted().map { "\($0)" }.joined(separator: ";")
        return (modes.isEmpty ? "" : "\u{1B}[?\(modes)h") + "\u{1B}[<1u" + (otherKeys > 0 ? "\u{1B}[>4;\(otherKeys)m" : "")
            + (hasKeypad ? "\u{1B}=" : "") + (hidesCursor ? "\u{1B}[?25l" : "")
    }
}
