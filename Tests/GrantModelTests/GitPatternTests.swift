import Foundation
import GrantModel
import TestSupport
import Testing

/// Compares the verdicts of patterns with git's own.
@Suite(.enabled(if: Command.exists("git"), Comment(rawValue: Machine.needs("git"))))
struct GitPatternTests {
    private struct Name {
        let path: [UInt8]
        let isDirectory: Bool
    }

    private let directory: String

    init() throws {
        var template = Array((NSTemporaryDirectory() + "/grantfs-patterns-XXXXXX").utf8CString)
        directory = template.withUnsafeMutableBufferPointer { buffer in String(cString: mkdtemp(buffer.baseAddress!)) }
        try git("init", "-q", directory + "/tree")
    }

    @discardableResult
    private func git(_ words: String..., input: [UInt8] = []) throws -> [UInt8] {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["git"] + words
        process.environment = ["PATH": ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin", "LC_ALL": "C", "HOME": directory]
        let file = directory + "/input"
        _ = FileManager.default.createFile(atPath: file, contents: Data(input))
        process.standardInput = FileHandle(forReadingAtPath: file)
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let bytes = Array(output.fileHandleForReading.readDataToEndOfFile())
        process.waitUntilExit()
        guard process.terminationStatus <= 1 else { throw TestFailure("git \(words) ends with \(process.terminationStatus)") }
        return bytes
    }

    private static let parts: [[UInt8]] = [
        Array("a".utf8), Array("b".utf8), Array("ab".utf8), Array("abc".utf8), Array(".a".utf8), Array("A".utf8), Array("a.b".utf8),
        Array("-".utf8), Array("a-b".utf8), Array("]".utf8), Array("[a]".utf8), Array("\\".utf8), Array("*".utf8), Array("!a".utf8),
        Array("#a".utf8), Array("a b".utf8), Array("é".utf8), Array("0".utf8), [0xFF], [0x61, 0x80],
    ]

    /// Makes files and directories of random names, and returns them.
    private func makeTree(_ random: inout SplitMix, count: Int) throws -> [Name] {
        var directories: [[UInt8]] = [[]]
        var names: [Name] = []
        var seen: Set<[UInt8]> = []
        while names.count < count {
            let parent = directories.randomElement(using: &random) ?? []
            // Few names at most places, so that long patterns match as well.
            let isOdd = Int.random(in: 0..<3, using: &random) == 0
            var name = (isOdd ? Self.parts[...] : Self.parts.prefix(3)).randomElement(using: &random) ?? []
            if isOdd, Bool.random(using: &random) { name += Self.parts.randomElement(using: &random) ?? [] }
            if parent.count > 60 { continue }
            let path = (parent.isEmpty ? [] : parent + [0x2F]) + name
            guard seen.insert(path).inserted else { continue }
            let isDirectory = Int.random(in: 0..<3, using: &random) == 0
            let full = Array((directory + "/tree/").utf8) + path + [0]
            let made = full.withUnsafeBufferPointer { bytes in
                bytes.withMemoryRebound(to: CChar.self) { text in
                    isDirectory ? mkdir(text.baseAddress!, 0o755) : close(open(text.baseAddress!, O_CREAT | O_WRONLY, 0o644))
                }
            }
            try #require(made == 0)
            if isDirectory { directories.append(path) }
            names.append(Name(path: path, isDirectory: isDirectory))
        }
        return names
    }

    private func pattern(_ random: inout SplitMix) -> [UInt8] {
        var text: [UInt8] = []
        if Int.random(in: 0..<4, using: &random) == 0 { text += Array("!".utf8) }
        if Int.random(in: 0..<4, using: &random) == 0 { text += Array("/".utf8) }
        let components = [1, 1, 1, 2, 2, 3, 3, 4].randomElement(using: &random) ?? 1
        for index in 0..<components {
            if index > 0 { text += Array("/".utf8) }
            let isMiddle = index > 0 && index < components - 1
            if Int.random(in: 0..<(isMiddle ? 2 : 5), using: &random) == 0 {
                text += Array("**".utf8)
                continue
            }
            for _ in 0..<([1, 1, 2, 3].randomElement(using: &random) ?? 1) {
                let odd = [
                    "*", "*", "?", "**", "[a-c]", "[!a]", "[^b-]", "[]a]", "[[:alpha:]]", "[[:punct:][:digit:]]", "[a-", "[z-a]", "\\*",
                    "\\a", "\\\\", "[\\]]", "[a\\-c]", "[[:x:]]", "[:alpha:]", "\\/", "[--0]", "[[:upper:]-z]",
                ]
                text +=
                    Int.random(in: 0..<2, using: &random) == 0
                    ? Self.parts.prefix(Bool.random(using: &random) ? 3 : 20).randomElement(using: &random) ?? []
                    : Array((odd.randomElement(using: &random) ?? "*").utf8)
            }
        }
        if Int.random(in: 0..<5, using: &random) == 0 { text += Array("/".utf8) }
        return text
    }

    /// Whether git ignores each name.
    private func ignored(_ names: [Name], by patterns: [[UInt8]]) throws -> [Bool] {
        let file = directory + "/patterns"
        _ = FileManager.default.createFile(atPath: file, contents: Data(patterns.flatMap { $0 + [0x0A] }))
        let output = try git(
            "-C", directory + "/tree", "-c", "core.excludesFile=" + file, "-c", "core.ignoreCase=false", "check-ignore", "--no-index",
            "--stdin", "-z", "-v", "-n", input: names.flatMap { Array("./".utf8) + $0.path + [0] })
        let fields = output.split(separator: 0, omittingEmptySubsequences: false)
        try #require(fields.count == names.count * 4 + 1)
        return names.indices.map { index in
            let pattern = fields[index * 4 + 2]
            return !pattern.isEmpty && pattern.first != UInt8(ascii: "!")
        }
    }

    @Test("The names that random patterns hide are those that git check-ignore ignores")
    func sameAsGit() throws {
        defer { try? FileManager.default.removeItem(atPath: directory) }
        var random = SplitMix(seed: 42)
        let names = try makeTree(&random, count: 1_000)
        var (compared, hidden) = (0, 0)
        var round = 0
        while compared < 100_000 {
            round += 1
            var patterns: [RulePattern] = []
            var lines: [[UInt8]] = []
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                let text = self.pattern(&random)
                // The beginning of a comment and blanks at the end mean something else to git.
                if text.first == UInt8(ascii: "#") || text.last == UInt8(ascii: " ") { continue }
                lines.append(text)
                // What is refused here must match nothing in git.
                if let pattern = try? RulePattern(text) { patterns.append(pattern) }
            }
            guard let rules = try? GrantRules(hide: patterns), !rules.isEmpty else { continue }
            let program = RuleProgram(rules)
            let expected = try ignored(names, by: lines)
            for (name, isIgnored) in zip(names, expected) {
                let verdict = program.judge(
                    path: name.path.split(separator: UInt8(ascii: "/")), isDirectory: name.isDirectory
                ).verdict
                compared += 1
                if verdict.isHidden { hidden += 1 }
                if verdict.isHidden != isIgnored {
                    Issue.record(
                        """
                        round \(round): \(VisibleText.of(name.path))\(name.isDirectory ? "/" : "") is \(isIgnored ? "ignored" : "kept") \
                        by git with \(lines.map { VisibleText.of($0) })
                        """)
                    break
                }
            }
        }
        #expect(hidden > 1_000)
    }
}
