import GrantModel

/// What one mount does in a second, between two looks.
struct TopRates: Sendable, Equatable {
    var requests: Double
    var readBytes: Double?
    var writtenBytes: Double?

    /// By mount; nothing for one that did not answer twice.
    static func between(_ old: TopSnapshot, _ new: TopSnapshot) -> [GrantID: TopRates] {
        let seconds = Double(new.time - old.time) / 1e9
        guard seconds > 0 else { return [:] }
        var result: [GrantID: TopRates] = [:]
        for section in new.sections where section.silence == nil {
            guard let mount = section.mount, let before = old.sections.first(where: { $0.mount == mount && $0.silence == nil }) else {
                continue
            }
            let rate = { (now: UInt64, then: UInt64) in now >= then ? Double(now - then) / seconds : 0 }
            let optional = { (now: UInt64?, then: UInt64?) in now.flatMap { now in then.map { rate(now, $0) } } }
            result[mount] = TopRates(
                requests: rate(section.requests, before.requests), readBytes: optional(section.readBytes, before.readBytes),
                writtenBytes: optional(section.writtenBytes, before.writtenBytes))
        }
        return result
    }

    /// `0`, `0.4`, `7.5`, `120`.
    static func text(_ rate: Double) -> String {
        let tenths = (rate * 10).rounded() / 10
        return tenths == 0 || tenths >= 10 ? String(Int(min(tenths, 1e15))) : String(tenths)
    }

    /// `0 B`, `512 B`, `1.5 KiB`, `20 MiB`.
    static func bytes(_ count: Double) -> String {
        var (value, units) = (count, ["B", "KiB", "MiB", "GiB", "TiB"][...])
        while value >= 1024, units.count > 1 {
            value /= 1024
            units = units.dropFirst()
        }
        return "\(text(units.first == "B" ? value.rounded() : value)) \(units.first ?? "")"
    }
}
