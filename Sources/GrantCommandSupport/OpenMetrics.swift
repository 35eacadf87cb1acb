import GrantControl
import GrantSystem

/// A text in the format of OpenMetrics 1.0, built family by family.
package struct OpenMetrics {
    package enum Kind: String {
        case counter
        case gauge
        case histogram
        case info
    }

    package typealias Labels = [(name: String, value: String)]

    package private(set) var text = ""

    package init() {}

    /// Begins a family, to which all samples that follow belong. `unit` is the last word of the name.
    package mutating func begin(_ name: String, _ kind: Kind, unit: String? = nil, _ help: String) {
        text += "# TYPE \(name) \(kind.rawValue)\n"
        if let unit { text += "# UNIT \(name) \(unit)\n" }
        text += "# HELP \(name) \(OpenMetrics.escaped(help))\n"
    }

    package mutating func add(_ name: String, _ labels: Labels, _ value: UInt64) { add(name, labels, text: String(value)) }
    package mutating func add(_ name: String, _ labels: Labels, signed value: Int64) { add(name, labels, text: String(value)) }
    package mutating func add(_ name: String, _ labels: Labels, seconds nanoseconds: Int64) {
        add(name, labels, text: OpenMetrics.seconds(nanoseconds))
    }

    /// Adds the buckets, the count and the sum of durations.
    package mutating func add(_ name: String, _ labels: Labels, _ durations: DurationCounts) {
        let ends = DurationBuckets.bounds.map { OpenMetrics.seconds(Int64($0)) } + ["+Inf"]
        var count: UInt64 = 0
        for (end, bucket) in zip(ends, durations.buckets) {
            count += bucket
            add(name + "_bucket", labels + [("le", end)], count)
        }
        add(name + "_count", labels, count)
        add(name + "_sum", labels, seconds: Int64(clamping: durations.nanoseconds))
    }

    package mutating func end() { text += "# EOF\n" }

    private mutating func add(_ name: String, _ labels: Labels, text value: String) {
        let list = labels.map { "\($0.name)=\"\(OpenMetrics.escaped($0.value))\"" }.joined(separator: ",")
        text += name + (list.isEmpty ? "" : "{\(list)}") + " " + value + "\n"
    }

    /// Without an exponent and with a decimal point, as the canonical form of a bucket's bound requires.
    private static func seconds(_ nanoseconds: Int64) -> String {
        let (whole, part) = nanoseconds.magnitude.quotientAndRemainder(dividingBy: 1_000_000_000)
        let digits = String(part)
        var fraction = String(repeating: "0", count: 9 - digits.count) + digits
        while fraction.count > 1, fraction.last == "0" { fraction.removeLast() }
        return "\(nanoseconds < 0 ? "-" : "")\(whole).\(fraction)"
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
