/// The part of a list that is to be seen, and the row that is selected in it.
public struct ListWindow: Sendable, Equatable {
    public private(set) var selected = 0
    /// The first row that is to be seen.
    public private(set) var first = 0

    public init() {}

    /// Goes to a row; `show` brings it into what is there.
    public mutating func select(_ row: Int) { selected = row }

    /// False for keys that do not move in a list. `height`: rows that are to be seen.
    public mutating func handle(_ key: Key, count: Int, height: Int) -> Bool {
        switch key {
        case .up, .control("p"): selected -= 1
        case .down, .control("n"): selected += 1
        case .pageUp: selected -= max(1, height - 1)
        case .pageDown: selected += max(1, height - 1)
        case .home: selected = 0
        case .end: selected = count - 1
        default: return false
        }
        show(count: count, height: height)
        return true
    }

    /// Moves as little as is needed for the selected row to be there and to be seen.
    public mutating func show(count: Int, height: Int) {
        selected = min(max(0, selected), max(0, count - 1))
        let height = max(1, height)
        if selected < first { first = selected }
        if selected >= first + height { first = selected - height + 1 }
        first = min(first, max(0, count - height))
    }

    public func rows(count: Int, height: Int) -> Range<Int> {
        let start = min(first, count)
        return start..<min(count, start + max(0, height))
    }
}
