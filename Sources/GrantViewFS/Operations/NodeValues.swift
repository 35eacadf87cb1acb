/// A value for some of the nodes of each scope.
///
/// Programs decide how many nodes get a value, and the kernel forgets nodes of removed files.
/// Values of forgotten nodes are dropped when the table has doubled since the last time. So it
/// never holds more than 1,024 values, or twice the number of known nodes.
struct NodeValues<Value> {
    private var scopes: [UInt32: [UInt64: Value]] = [:]
    private(set) var count = 0
    private var limit = leastLimit

    static var leastLimit: Int { 1_024 }

    subscript(node: UInt64, in scope: UInt32) -> Value? { scopes[scope]?[node] }

    var all: [(scope: UInt32, node: UInt64, value: Value)] {
        scopes.flatMap { scope, nodes in nodes.map { (scope, $0.key, $0.value) } }
    }

    /// Changes the value of a node, which is `initial` before the first change.
    ///
    /// `isKnown`: whether the kernel knows a node.
    mutating func update(
        _ node: UInt64, in scope: UInt32, default initial: Value, isKnown: (UInt64) -> Bool, _ body: (inout Value) -> Void
    ) {
        let isNew = scopes[scope]?[node] == nil
        body(&scopes[scope, default: [:]][node, default: initial])
        if !isNew { return }
        count += 1
        if count > limit { dropForgotten(isKnown) }
    }

    private mutating func dropForgotten(_ isKnown: (UInt64) -> Bool) {
        scopes = scopes.compactMapValues { nodes in
            let known = nodes.filter { isKnown($0.key) }
            return known.isEmpty ? nil : known
        }
        count = scopes.values.reduce(0) { $0 + $1.count }
        limit = max(Self.leastLimit, 2 * count)
    }

    mutating func remove(_ node: UInt64, in scope: UInt32) { if scopes[scope]?.removeValue(forKey: node) != nil { count -= 1 } }

    mutating func remove(_ scope: UInt32) { count -= scopes.removeValue(forKey: scope)?.count ?? 0 }
}
