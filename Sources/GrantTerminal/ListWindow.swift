/// The visible part of a list, and its selected row.
public struct ListWindow: Sendable, Equatable {
    public private(set) var selected = 0
    /// The first visible row.
    public private(set) var first = 0

    public init() {}

    /// Selects a row. `show` then clamps it to the list.
    public mutating func select(_ row: Int) { selected = row }

    /// Returns false for keys that do not move in a list. `height`: the number of visible rows.
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

    /// Clamps the selection to the list, and scrolls as little as needed to make it visible.
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
