import Foundation

/// A text in OpenMetrics 1.0, read as strictly as the specification demands (https://prometheus.io/docs/specs/om/open_metrics_spec/).
/// Deviations that a lenient reader would accept are errors here.
public struct OpenMetricsText: Sendable {
    public struct Sample: Sendable {
        public let name: String
        public let labels: [String: String]
        public let value: Double
    }

    public struct Family: Sendable {
        public let name: String
        public let type: String
        public var unit: String?
        public var help: String?
        public var samples: [Sample] = []
    }

    public private(set) var families: [Family] = []

    public init(_ text: String) throws {
        guard text.hasSuffix("# EOF\n") else { throw TestFailure("the text does not end with # EOF and a line feed") }
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast(2)
        for line in lines {
            do {
                try read(String(line))
            } catch {
                throw TestFailure("\(error): \(line)")
            }
        }
        for family in families { try check(family) }
    }

    public func family(_ name: String) -> Family? { families.first { $0.name == name } }

    /// The value of the only sample whose labels include these.
    public func value(_ name: String, _ labels: [String: String] = [:]) -> Double? {
        let found = families.flatMap(\.samples).filter { sample in
            sample.name == name && labels.allSatisfy { sample.labels[$0.key] == $0.value }
        }
        return found.count == 1 ? found[0].value : nil
    }

    /// The sum of the samples whose labels include these.
    public func sum(_ name: String, _ labels: [String: String]) -> Double {
        families.flatMap(\.samples).reduce(0) { total, sample in
            sample.name == name && labels.allSatisfy({ sample.labels[$0.key] == $0.value }) ? total + sample.value : total
        }
    }

    private mutating func read(_ line: String) throws {
        if line.isEmpty { throw TestFailure("an empty line") }
        guard line.hasPrefix("#") else { return try readSample(line) }
        let words = line.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false).map(String.init)
        guard words.count == 4, words[0] == "#" else { throw TestFailure("no metadata") }
        switch words[1] {
        case "TYPE":
            guard ["counter", "gauge", "histogram", "info"].contains(words[3]) else { throw TestFailure("no type") }
            if families.contains(where: { $0.name == words[2] }) { throw TestFailure("a family comes twice") }
            guard words[2].wholeMatch(of: /[a-zA-Z_:][a-zA-Z0-9_:]*/) != nil else { throw TestFailure("no name") }
            families.append(Family(name: words[2], type: words[3]))
        case "UNIT", "HELP":
            guard let last = families.indices.last, families[last].name == words[2], families[last].samples.isEmpty else {
                throw TestFailure("metadata of another family, or after its samples")
            }
            if words[1] == "HELP" { families[last].help = words[3] } else { families[last].unit = words[3] }
            if words[1] == "UNIT", !words[2].hasSuffix("_" + words[3]) { throw TestFailure("a name without its unit") }
        default: throw TestFailure("unknown metadata")
        }
    }

    private mutating func readSample(_ line: String) throws {
        guard let last = families.indices.last else { throw TestFailure("a sample without a family") }
        guard let match = line.wholeMatch(of: /([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)/) else { throw TestFailure("no sample") }
        let labels = try match.2.map { try Self.labels(String($0.dropFirst().dropLast())) } ?? [:]
        guard let value = Double(match.3), match.3 != "nan" else { throw TestFailure("no number") }
        let suffixes = ["counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"], "info": ["_info"]]
        let family = families[last]
        guard suffixes[family.type]!.contains(where: { family.name + $0 == match.1 }) else {
            throw TestFailure("a sample of another family")
        }
        families[last].samples.append(Sample(name: String(match.1), labels: labels, value: value))
    }

    private static func labels(_ text: String) throws -> [String: String] {
        var labels: [String: String] = [:]
        var rest = text[...]
        while !rest.isEmpty {
            guard let match = rest.prefixMatch(of: /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)/) else {
                throw TestFailure("no label at \(rest)")
            }
            if labels[String(match.1)] != nil { throw TestFailure("a label comes twice") }
            var value = ""
            var isEscaped = false
            for character in match.2 {
                if isEscaped {
                    value.append(character == "n" ? "\n" : character)
                    isEscaped = false
                } else if character == "\\" {
                    isEscaped = true
                } else {
                    value.append(character)
                }
            }
            labels[String(match.1)] = value
            rest = rest[match.range.upperBound...]
            if match.3 == ",", rest.isEmpty { throw TestFailure("a comma at the end") }
        }
        return labels
    }

    private func check(_ family: Family) throws {
        if family.help == nil { throw TestFailure("\(family.name) has no help") }
        let identities = family.samples.map { "\($0.name) \($0.labels.sorted { $0.key < $1.key })" }
        if Set(identities).count != identities.count { throw TestFailure("\(family.name): a sample comes twice") }
        if family.samples.contains(where: { $0.value < 0 && family.type != "gauge" }) { throw TestFailure("\(family.name): negative") }
        guard family.type == "histogram" else { return }
        let groups = Dictionary(grouping: family.samples) { $0.labels.filter { $0.key != "le" } }
        for (labels, samples) in groups {
            let buckets = samples.filter { $0.name.hasSuffix("_bucket") }
            let ends = buckets.compactMap { $0.labels["le"].flatMap { $0 == "+Inf" ? Double.infinity : Double($0) } }
            guard ends.count == buckets.count, ends == ends.sorted(), Set(ends).count == ends.count, ends.last == .infinity else {
                throw TestFailure("\(family.name) \(labels): the buckets are not in order, or do not end at +Inf")
            }
            let counts = buckets.map(\.value)
            guard counts == counts.sorted(), counts.last == samples.first(where: { $0.name.hasSuffix("_count") })?.value,
                samples.contains(where: { $0.name.hasSuffix("_sum") })
            else { throw TestFailure("\(family.name) \(labels): the counts do not add up") }
        }
    }
}
