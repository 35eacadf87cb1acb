import GrantModel

/// The rates of a mount, or of a grant in a mount, between two updates: per second.
package struct TopRates: Sendable, Equatable {
    var operations: Double
    var readBytes: Double?
    var writtenBytes: Double?
    /// For a grant: read and written bytes together.
    var bytes: Double?

    /// A mount, or one grant in it.
    struct Source: Hashable {
        var mount: GrantID
        var grant: GrantID?
    }

    /// Omits mounts that did not answer twice, and grants that a mount did not report.
    static func between(_ old: TopSnapshot, _ new: TopSnapshot) -> [Source: TopRates] {
        let seconds = Double(new.time - old.time) / 1e9
        guard seconds > 0 else { return [:] }
        // A counter that starts again counts from 0.
        let rate = { (now: UInt64, then: UInt64) in now >= then ? Double(now - then) / seconds : 0 }
        var result: [Source: TopRates] = [:]
        for section in new.sections where section.unresponsiveReason == nil && !section.isDead {
            guard let mount = section.mount, let before = old.sections.first(where: { $0.mount == mount && $0.unresponsiveReason == nil })
            else {
                continue
            }
            let optional = { (now: UInt64?, then: UInt64?) in now.flatMap { now in then.map { rate(now, $0) } } }
            result[Source(mount: mount)] = TopRates(
                operations: rate(section.requests, before.requests), readBytes: optional(section.readBytes, before.readBytes),
                writtenBytes: optional(section.writtenBytes, before.writtenBytes))
            let rows = Dictionary(before.grants.map { ($0.id, $0) }) { first, _ in first }
            for row in section.grants where row.isLive {
                guard let then = rows[row.id], then.isLive else { continue }
                result[Source(mount: mount, grant: row.id)] = TopRates(
                    operations: rate(row.operations, then.operations), bytes: rate(row.bytes, then.bytes))
            }
        }
        return result
    }

    /// `0`, `0.4`, `7.5`, `120`.
    package static func text(_ rate: Double) -> String {
        let tenths = (rate * 10).rounded() / 10
        return tenths == 0 || tenths >= 10 ? String(Int(min(tenths, 1e15))) : String(tenths)
    }

    /// A duration for people: `45 s`, `12 min`, `3 h`, `7 d`.
    static func duration(_ seconds: Double) -> String {
        let whole = Int64(saturating: max(0, seconds))
        switch whole {
        case ..<120: return "\(whole) s"
        case ..<7200: return "\(whole / 60) min"
        case ..<172_800: return "\(whole / 3600) h"
        default: return "\(whole / 86_400) d"
        }
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
