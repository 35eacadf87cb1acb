import Foundation
import TestSupport
import Testing

/// Tests/Fixtures/tour-transcript.md: the output of the tour's commands, for a user and for root. Values that differ each time (ids,
/// times, process and user numbers, the home) are replaced by fixed ones.
struct TourTranscript {
    /// `root` or `user`: the name of a section.
    private let reader: String
    private let home: String
    private let program: String

    init(_ user: Identity, home: String) {
        reader = user.uid == 0 ? "root" : "user"
        self.home = home
        program = Programs.grantfs(for: user)
    }

    private static let file = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../Fixtures/tour-transcript.md").standardized
    private static let writing = NSLock()

    static var isRecorded: Bool { ProcessInfo.processInfo.environment["GRANTFS_RECORD_TRANSCRIPT"] == "1" }

    private var begin: String { "<!-- BEGIN \(reader), made by make transcript -->\n" }
    private var end: String { "<!-- END \(reader) -->\n" }

    /// The commands and the output of each, in the form of the page.
    func section(_ commands: [(command: String, printed: [String])]) -> String {
        var names = Names(home: home, isRoot: reader == "root", program: program)
        let text = commands.map { "$ \($0.command)\n" + $0.printed.map { names.plain($0) + "\n" }.joined() }.joined()
        return "```console\n" + text + "```\n"
    }

    /// The section of the page, or nil if it has none.
    func shown() throws -> String? {
        let page = try String(contentsOf: Self.file, encoding: .utf8)
        guard let range = range(in: page) else { return nil }
        return String(page[range])
    }

    /// Puts the section in its place on the page.
    func record(_ section: String) throws {
        try Self.writing.withLock {
            var page = try String(contentsOf: Self.file, encoding: .utf8)
            guard let range = range(in: page) else { throw TestFailure("\(Self.file.path) has no place for “\(reader)”") }
            page.replaceSubrange(range, with: section)
            try page.write(to: Self.file, atomically: true, encoding: .utf8)
        }
    }

    private func range(in page: String) -> Range<String.Index>? {
        guard let from = page.range(of: begin), let to = page.range(of: end, range: from.upperBound..<page.endIndex) else { return nil }
        return from.upperBound..<to.lowerBound
    }

    /// The values seen of each kind, so that each gets one name everywhere.
    private struct Names {
        let home: String
        let isRoot: Bool
        /// The paths of the program that is tried.
        let programs: [String]
        private var ids: [String] = []
        private var processes: [String] = []

        init(home: String, isRoot: Bool, program: String) {
            (self.home, self.isRoot) = (home, isRoot)
            programs = [program, URL(fileURLWithPath: program).resolvingSymlinksInPath().path]
        }

        /// Ids of their usual lengths, which differ in their first character.
        private static let digits = Array("5819ade2c3b4f607a8d1e2f3b4c5a697")

        mutating func plain(_ line: String) -> String {
            var text = line
            for program in programs { Self.replace(Self.path(program), in: &text) { _ in "~/grantfs/.build/release/grantfs" } }
            Self.replace(Self.path(home), in: &text) { _ in isRoot ? "/root" : "/home/ann" }
            Self.replace("\\b[0-9a-f]{32}\\b|\\b[0-9a-f]{12}\\b", in: &text) { number($0) }
            Self.replace("(?<=pid |by )[0-9]+", in: &text) { process($0) }
            Self.replace("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)", in: &text) { _ in "2026-11-23T15:04:07.120+01:00" }
            Self.replace("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}", in: &text) { _ in "2026-11-23 15:04:07" }
            // A worker may still be about to leave the scope of a request that it has answered.
            Self.replace("(active|revoked) +never +[0-9]+ +[0-9]+ ", in: &text) {
                $0.replacingOccurrences(of: "[0-9]+ $", with: "0 ", options: .regularExpression)
            }
            Self.replace("uid [0-9]+( \\(login [0-9]+\\))?", in: &text) { _ in isRoot ? "uid 0" : "uid 1000" }
            Self.replace("\\b[0-9.]+ ms", in: &text) { _ in "0.2 ms" }
            Self.replace("[0-9]+(?= (inodes|descriptors))", in: &text) { _ in "3" }
            Self.replace("(?<=active {1,9}never {1,9})[0-9]+(?= )", in: &text) { _ in "2" }
            return text
        }

        private static func path(_ path: String) -> String { NSRegularExpression.escapedPattern(for: path) + "(?![A-Za-z0-9])" }

        private static func replace(_ pattern: String, in text: inout String, by name: (String) -> String) {
            var searched = text.startIndex
            while let found = text.range(of: pattern, options: .regularExpression, range: searched..<text.endIndex) {
                let before = text.distance(from: text.startIndex, to: found.lowerBound)
                let put = name(String(text[found]))
                text.replaceSubrange(found, with: put)
                searched = text.index(text.startIndex, offsetBy: before + put.count)
            }
        }

        private mutating func number(_ id: String) -> String {
            let short = String(id.prefix(12))
            if !ids.contains(short) { ids.append(short) }
            let place = ids.firstIndex(of: short) ?? 0
            let turned = Self.digits[(place * 5 % Self.digits.count)...] + Self.digits[..<(place * 5 % Self.digits.count)]
            return String(String(turned).prefix(id.count))
        }

        private mutating func process(_ pid: String) -> String {
            if !processes.contains(pid) { processes.append(pid) }
            return "\(4711 + (processes.firstIndex(of: pid) ?? 0))"
        }
    }
}
