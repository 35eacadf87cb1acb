import GrantControl
import GrantSystem

/// A text as OpenMetrics 1.0 has it, family by family.
struct OpenMetrics {
    enum Kind: String {
        case counter
        case gauge
        case histogram
        case info
    }

    typealias Labels = [(name: String, value: String)]

    private(set) var text = ""

    /// Begins a family: all samples that follow are of it. `unit` is the last word of the name.
    mutating func begin(_ name: String, _ kind: Kind, unit: String? = nil, _ help: String) {
        text += "# TYPE \(name) \(kind.rawValue)\n"
        if let unit { text += "# UNIT \(name) \(unit)\n" }
        text += "# HELP \(name) \(OpenMetrics.escaped(help))\n"
    }

    mutating func add(_ name: String, _ labels: Labels, _ value: UInt64) { add(name, labels, text: String(value)) }
    mutating func add(_ name: String, _ labels: Labels, seconds nanoseconds: Int64) {
        add(name, labels, text: OpenMetrics.seconds(nanoseconds))
    }

    /// The buckets, the count and the sum of durations.
    mutating func add(_ name: String, _ labels: Labels, _ durations: DurationCounts) {
        let ends = DurationBuckets.bounds.map { OpenMetrics.seconds(Int64($0)) } + ["+Inf"]
        var count: UInt64 = 0
        for (end, bucket) in zip(ends, durations.buckets) {
            count += bucket
            add(name + "_bucket", labels + [("le", end)], count)
        }
        add(name + "_count", labels, count)
        add(name + "_sum", labels, seconds: Int64(clamping: durations.nanoseconds))
    }

    mutating func end() { text += "# EOF\n" }

    private mutating func add(_ name: String, _ labels: Labels, text value: String) {
        let list = labels.map { "\($0.name)=\"\(OpenMetrics.escaped($0.value))\"" }.joined(separator: ",")
        text += name + (list.isEmpty ? "" : "{\(list)}") + " " + value + "\n"
    }

    /// Without an exponent, and with a point, as the canonical form of a bucket's end has it.
    private static func seconds(_ nanoseconds: Int64) -> String {
        let (whole, part) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
        let digits = String(part)
        var fraction = String(repeating: "0", count: 9 - digits.count) + digits
        while fraction.count > 1, fraction.last == "0" { fraction.removeLast() }
        return "\(whole).\(fraction)"
    }

    private static func escaped(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
            switch scalar {
            case "\\": "\\\\"
            case "\"": "\\\""
            case "\n": "\\n"
            default: String(scalar)
            }
        }.joined()
    }
}
