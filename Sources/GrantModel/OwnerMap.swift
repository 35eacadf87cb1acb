/// Which owners files have in a mount (`-o map=`), as a user namespace maps its users (user_namespaces(7)).
///
/// A file of the user `inside` is shown with the owner `outside`, and files that this user makes belong to `inside`. Files of all other
/// owners are read-only and have the owner 65534, and all other users make none.
package struct OwnerMap: Sendable, Equatable {
    package struct Range: Sendable, Equatable {
        /// As the granted directory has it, and as the container's programs see it.
        let inside: UInt32
        /// As the machine's programs see it.
        let outside: UInt32
        let count: UInt32
    }

    package let users: [Range]
    package let groups: [Range]

    /// The kernel takes no more ranges, and less than a page of text (user_namespaces(7)).
    private static let (mostRanges, mostBytes) = (340, 4095)

    /// Parses `INSIDE:OUTSIDE:COUNT`, with slashes between several ranges. `groups`: nil if they are mapped as users are.
    package init(users: String, groups: String?) throws(GrantError) {
        self.users = try Self.ranges(users, of: "map")
        self.groups = try groups.map { (text) throws(GrantError) in try Self.ranges(text, of: "map-groups") } ?? self.users
    }

    private static func ranges(_ text: String, of option: String) throws(GrantError) -> [Range] {
        let flaw = { (cause: String) in
            GrantError(
                .usage, "the mount option “\(option)=\(text)” is wrong", cause: cause,
                advice: "INSIDE:OUTSIDE:COUNT, such as 0:100000:65536, with / between several")
        }
        var ranges: [Range] = []
        for word in text.split(separator: "/", omittingEmptySubsequences: false) {
            let numbers = word.split(separator: ":", omittingEmptySubsequences: false).map { word in
                word.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ? UInt32(String(word), radix: 10) : nil
            }
            guard numbers.count == 3, let inside = numbers[0], let outside = numbers[1], let count = numbers[2] else {
                throw flaw("“\(word)” is not three numbers")
            }
            // The last number stands for no user.
            guard count > 0, max(inside, outside) <= UInt32.max - count else {
                throw flaw("“\(word)” is empty or leads beyond the last number")
            }
            ranges.append(Range(inside: inside, outside: outside, count: count))
        }
        if ranges.count > mostRanges || lines(ranges).utf8.count > mostBytes { throw flaw("it has too many ranges") }
        for numbers in [ranges.map { ($0.inside, $0.count) }, ranges.map { ($0.outside, $0.count) }] {
            let sorted = numbers.sorted { $0.0 < $1.0 }
            for (lower, higher) in zip(sorted, sorted.dropFirst()) where higher.0 - lower.0 < lower.1 {
                throw flaw("a number has two others, \(higher.0)")
            }
        }
        return ranges
    }

    /// Whether a user or a group has one of these numbers outside.
    package func has(user: UInt32, group: UInt32) -> Bool {
        users.contains { $0.outside <= user && user - $0.outside < $0.count }
            || groups.contains { $0.outside <= group && group - $0.outside < $0.count }
    }

    /// The contents of /proc/PID/uid_map.
    package var userLines: String { Self.lines(users) }
    package var groupLines: String { Self.lines(groups) }

    private static func lines(_ ranges: [Range]) -> String {
        ranges.map { "\($0.inside) \($0.outside) \($0.count)\n" }.joined()
    }

    /// The values of `map` and `map-groups`.
    package var userText: String { Self.text(users) }
    package var groupText: String { Self.text(groups) }

    private static func text(_ ranges: [Range]) -> String {
        ranges.map { "\($0.inside):\($0.outside):\($0.count)" }.joined(separator: "/")
    }
}
