import GrantModel

/// A line of text that is being edited.
public struct LineEditor: Sendable, Equatable {
    private var scalars: [Unicode.Scalar]
    /// The insertion position.
    public private(set) var position: Int

    public init(_ text: String = "") {
        scalars = Array(text.unicodeScalars)
        position = scalars.count
    }

    public var text: String { String(String.UnicodeScalarView(scalars)) }

    /// Returns false, and changes nothing, for keys that do not edit.
    public mutating func handle(_ key: Key) -> Bool {
        switch key {
        case .character(let scalar):
            scalars.insert(scalar, at: position)
            position += 1
        case .backspace where position > 0:
            position -= 1
            scalars.remove(at: position)
        case .delete where position < scalars.count: scalars.remove(at: position)
        case .left: position = max(0, position - 1)
        case .right: position = min(scalars.count, position + 1)
        case .home, .control("a"): position = 0
        case .end, .control("e"): position = scalars.count
        case .control("u"):
            scalars.removeFirst(position)
            position = 0
        case .backspace, .delete: break
        default: return false
        }
        return true
    }

    /// Returns the part that fits into the columns, and the cursor's column in it.
    public func shown(columns: Int) -> (text: String, cursor: Int) {
        let before = VisibleText.of(String(String.UnicodeScalarView(scalars[..<position])))
        let after = VisibleText.of(String(String.UnicodeScalarView(scalars[position...])))
        let left = DisplayWidth.cutStart(before, to: max(0, columns - 1))
        let column = DisplayWidth.of(left)
        return (left + DisplayWidth.cut(after, to: max(0, columns - column)), column)
    }
}
