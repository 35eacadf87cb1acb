import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// The output about a program's changes, for people and for scripts.
enum ChangeText {
    /// `3 files changed, 1 added`.
    static func count(_ changes: [TreeChange]) -> String {
        let parts = [(TreeChange.Kind.changed, "changed"), (.added, "added"), (.removed, "removed")].compactMap { kind, word in
            let number = changes.count { $0.kind == kind }
            return number == 0 ? nil : "\(number) \(word)"
        }
        return changes.isEmpty
            ? "nothing" : "\(parts.joined(separator: ", ")) (\(changes.count == 1 ? "1 name" : "\(changes.count) names"))"
    }

    /// `M /home/me/src/main.c (contents, mode 0644 → 0755)`.
    static func line(_ change: TreeChange) -> String {
        let letter =
            switch change.kind {
            case .added: "A"
            case .removed: "D"
            case .changed: "M"
            }
        let aspects = TreeChange.Aspect.allCases.filter { change.aspects.contains($0) }.map { aspect in
            guard aspect == .mode, let before = change.modeBefore, let now = change.modeNow else { return aspect.rawValue }
            return "mode \(octal(before)) → \(octal(now))"
        }
        return "\(letter) \(Terminal.visible(change.place))\(change.isDirectory ? "/" : "")"
            + (aspects.isEmpty ? "" : " (\(aspects.joined(separator: ", ")))")
    }

    private static func octal(_ mode: UInt32) -> String {
        let digits = String(mode & 0o7777, radix: 8)
        return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }

    static func json(_ change: TreeChange) -> JSON {
        .object(
            JSON.members("path", change.place) + JSON.members("directory", change.root) + [
                ("kind", .string(change.kind.rawValue)), ("isDirectory", .bool(change.isDirectory)),
                ("what", .array(TreeChange.Aspect.allCases.filter { change.aspects.contains($0) }.map { .string($0.rawValue) })),
                ("modeBefore", change.modeBefore.map { .string(octal($0)) } ?? .null),
                ("modeNow", change.modeNow.map { .string(octal($0)) } ?? .null),
                ("sizeBefore", change.sizeBefore.map { .integer($0) } ?? .null), ("sizeNow", change.sizeNow.map { .integer($0) } ?? .null),
            ])
    }

    /// Prints the differing lines, by diff(1). For files that are not regular, or differ only in attributes, it prints a line that
    /// patch(1) ignores. `output`: a descriptor.
    static func printPatch(_ change: TreeChange, of snapshot: RunSnapshot, to output: Int32) throws(GrantError) {
        let files = try snapshot.open(change)
        let numbers = [files.before, files.now].compactMap(\.self)
        defer { for number in numbers { close(number) } }
        let hasContents = change.aspects.isEmpty || change.aspects.contains(.contents) || change.aspects.contains(.type)
        if numbers.isEmpty || !hasContents { return try Terminal.print(line(change), to: output) }
        let name = Terminal.visible(CanonicalPath.join(CanonicalPath.lastName(of: change.root), change.path))
        let words =
            [
                "diff", "-u", "--label", files.before == nil ? "/dev/null" : "a/\(name)", "--label",
                files.now == nil ? "/dev/null" : "b/\(name)",
            ]
            + [files.before == nil ? "/dev/null" : "/dev/fd/3", files.now == nil ? "/dev/null" : "/dev/fd/\(2 + numbers.count)"]
        let status: Int32
        do throws(Errno) {
            status = try isatty(output) == 1 ? show(words, numbers, on: output) : hand(words, numbers, to: output)
        } catch {
            throw GrantError(
                .unsupported, "the differences cannot be shown", cause: "diff(1): \(error)", advice: "install the package diffutils")
        }
        if status > 1 {
            throw GrantError(.system, "the differences of “\(name)” cannot be shown", cause: "diff(1) ended with status \(status)")
        }
    }

    /// Passes the output through unchanged, for patch(1). Returns diff(1)'s exit status.
    private static func hand(_ words: [String], _ files: [Int32], to output: Int32) throws(Errno) -> Int32 {
        try ChildProcess.wait(try start(words, files, output))
    }

    /// Escapes the output for a terminal.
    private static func show(_ words: [String], _ files: [Int32], on output: Int32) throws(Errno) -> Int32 {
        let pipe = try PipePair()
        let child = try start(words, files, pipe.writing.number)
        let reading = pipe.closeWriting()
        var lines = VisibleLines()
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let count = read(reading.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count <= 0 { break }
            Terminal.show(lines.add(buffer.prefix(count)), on: output)
        }
        Terminal.show(lines.end(), on: output)
        return try ChildProcess.wait(child)
    }

    /// Starts diff(1) with `output` as its standard output.
    private static func start(_ words: [String], _ files: [Int32], _ output: Int32) throws(Errno) -> Int32 {
        let saved = output == Terminal.standardOutput ? -1 : dup(Terminal.standardOutput)
        if saved >= 0 { dup2(output, Terminal.standardOutput) }
        defer {
            if saved >= 0 {
                dup2(saved, Terminal.standardOutput)
                close(saved)
            }
        }
        return try ChildProcess.spawn("diff", arguments: words.map { Array($0.utf8) }, descriptors: files)
    }
}
