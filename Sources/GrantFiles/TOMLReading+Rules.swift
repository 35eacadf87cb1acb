import GrantModel

// Lists of patterns: `hide = [".env*"]`.
extension TOMLReading {
    func patterns(_ value: TOMLValue, _ key: String) throws(GrantError) -> [RulePattern] {
        try list(value, key, example: "\(key) = [\".env*\"]") { (item) throws(GrantError) in
            let bytes = key.hasSuffix("Hex") ? try self.bytes(item, key) : Array(try text(item, key).utf8)
            return try self.at(item) { () throws(GrantError) in try RulePattern(bytes) }
        }
    }

    func rules(_ lists: [String: [RulePattern]], _ value: TOMLValue) throws(GrantError) -> GrantRules {
        try at(value) { () throws(GrantError) in
            try GrantRules(hide: lists["hide"] ?? [], protect: lists["protect"] ?? [], only: lists["only"] ?? [])
        }
    }

    /// Makes an error of the command line one of this line.
    private func at<Made>(_ value: TOMLValue, _ make: () throws(GrantError) -> Made) throws(GrantError) -> Made {
        do throws(GrantError) {
            return try make()
        } catch {
            throw wrong(value, error.message, cause: error.cause, advice: error.advice)
        }
    }

    func bytes(_ value: TOMLValue, _ key: String) throws(GrantError) -> [UInt8] {
        let digits = Array(try text(value, key).utf8).map { Hexadecimal.value(of: $0) }
        guard !digits.isEmpty, digits.count.isMultiple(of: 2), !digits.contains(nil) else {
            throw wrong(value, "“\(key)” is bytes as hexadecimal digits, two for each")
        }
        return stride(from: 0, to: digits.count, by: 2).map { (digits[$0] ?? 0) << 4 | (digits[$0 + 1] ?? 0) }
    }
}
