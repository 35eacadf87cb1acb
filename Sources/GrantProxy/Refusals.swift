import GrantSystem

/// A target that a program was refused, and how often.
public struct Refusal: Sendable {
    /// `HOST:PORT`
    public let target: String
    public let reason: String
    public internal(set) var count: Int

    public init(target: String, reason: String, count: Int) { (self.target, self.reason, self.count) = (target, reason, count) }
}

/// The refusals so far. The list is bounded: later targets are only counted.
final class Refusals: Sendable {
    private static let maxTargets = 200
    private let list = Lock<(known: [Refusal], others: Int)>(([], 0))

    func add(_ target: String, _ reason: String) {
        list.withLock { list in
            if let place = list.known.firstIndex(where: { $0.target == target && $0.reason == reason }) {
                list.known[place].count += 1
            } else if list.known.count < Refusals.maxTargets {
                list.known.append(Refusal(target: target, reason: reason, count: 1))
            } else {
                list.others += 1
            }
        }
    }

    /// The refusals in order, and the number of those beyond the limit.
    var all: (known: [Refusal], others: Int) { list.withLock { $0 } }
}
