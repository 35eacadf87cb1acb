import GrantSystem

/// Something that a program was refused, as often as it was.
public struct Refusal: Sendable {
    /// `HOST:PORT`
    public let target: String
    public let reason: String
    public internal(set) var count: Int

    public init(target: String, reason: String, count: Int) { (self.target, self.reason, self.count) = (target, reason, count) }
}

/// What was refused so far. Bounded: a program that asks for ever more names has the later ones counted alone.
final class Refusals: Sendable {
    private static let most = 200
    private let list = Lock<(known: [Refusal], others: Int)>(([], 0))

    func add(_ target: String, _ reason: String) {
        list.withLock { list in
            if let place = list.known.firstIndex(where: { $0.target == target && $0.reason == reason }) {
                list.known[place].count += 1
            } else if list.known.count < Refusals.most {
                list.known.append(Refusal(target: target, reason: reason, count: 1))
            } else {
                list.others += 1
            }
        }
    }

    /// In the order in which they came; how many more there were.
    var all: (known: [Refusal], others: Int) { list.withLock { $0 } }
}
