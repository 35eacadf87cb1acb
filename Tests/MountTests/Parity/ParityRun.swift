import Foundation
import Glibc
import TestSupport

/// Two directories of one filesystem, one of them granted and mounted, and what it takes to make the same calls in both.
final class ParityRun {
    /// Where the native and the mounted run said something else.
    struct Difference: Error, CustomStringConvertible {
        let index: Int
        let call: String
        let native: String
        let mounted: String

        /// Long answers, of a whole tree say, are cut to the parts that differ.
        var description: String {
            let (ours, theirs) = (mounted.components(separatedBy: " ; "), native.components(separatedBy: " ; "))
            guard ours.count > 1 || theirs.count > 1 else { return "\(call): natively \(native), through the mount \(mounted)" }
            let only = { (these: [String], others: [String]) in these.filter { !others.contains($0) }.joined(separator: "\n    ") }
            return "\(call): natively\n    \(only(theirs, ours))\nthrough the mount\n    \(only(ours, theirs))"
        }
    }

    let fixture: MountFixture
    private let native: String
    private let granted: String
    private let mountpoint: String
    private let cache: String
    private var number = 0

    /// `source` makes the filesystem (see `ParitySource`). `cache`: the mount's.
    init(on source: ParitySource, cache: String) throws {
        self.cache = cache
        fixture = try MountFixture()
        let volume = try fixture.directory("volume")
        try source.mount(at: volume, for: fixture)
        (native, granted) = (try fixture.directory("volume/native"), try fixture.directory("volume/granted"))
        for directory in [granted, try fixture.directory("volume/other")] { try fixture.grant(directory) }
        // A native directory has programs with set-id bits and devices, so the mount must not be stricter.
        mountpoint = try fixture.mount(options: "allow_other,suid,dev,cache=\(cache)")
    }

    private var mounted: String { mountpoint + "/granted" }

    /// Makes the script's calls natively and through the mount, and throws the first difference. With `revoking` the grant is then
    /// withdrawn and every held object must be refused. `leaks` lists the exceptions. `beside` runs in the mount at the same time.
    func compare(_ script: ParityScript, revoking: Bool = false, beside company: ParityCompany = .none) throws
        -> (difference: Difference?, leaks: [String])
    {
        number += 1
        let run = "run-\(number)"
        let file = fixture.base + "/script"
        try script.description.appending("\n").write(toFile: file, atomically: false, encoding: .utf8)
        for place in [native, granted] {
            try FileManager.default.createDirectory(atPath: "\(place)/\(run)", withIntermediateDirectories: false)
            chmod("\(place)/\(run)", 0o777)
        }
        defer { for place in [native, mounted] { _ = try? Command.run(["rm", "-rf", "\(place)/\(run)"]) } }
        let first = try Child(
            [Programs.parityProbe, "run", "\(native)/\(run)", "\(native)/\(run)", file, fixture.base + "/native.out", "--contract"])
        try first.expect("end", within: 400)
        let second = try Child([Programs.parityProbe, "run", "\(mounted)/\(run)", "\(granted)/\(run)", file, fixture.base + "/mounted.out"])
        try end(of: second, beside: company)
        let difference = try firstDifference(of: script)
        guard revoking else { return (difference, []) }
        try fixture.revoke("granted")
        var leaks: [String] = []
        for (call, wanted) in [("held", "tried"), ("letgo", "done")] {
            for user in 0..<3 {
                second.send("\(user) \(call)")
                var answer = second.line(within: 60) ?? "nothing"
                // Under write-back the kernel itself knows the end of a file (docs/semantics.md).
                if cache == "exclusive" {
                    let allowed = Machine.losesErrorsOfReads ? "pread of [0-7] (answers 0|gives EIO); " : "pread of [0-7] answers 0; "
                    answer = answer.replacingOccurrences(of: allowed, with: "", options: .regularExpression)
                }
                if answer != wanted { leaks.append("user \(user), \(call): \(answer)") }
            }
        }
        try fixture.restore("granted")
        return (difference, leaks)
    }

    /// Waits for it. The company may finish: after a process is killed in a call, syncfs(2) reports
    /// to others that a time could not be written (fs/fuse/inode.c, fuse_flush_time_update).
    private func end(of run: Child, beside company: ParityCompany) throws {
        switch company {
        case .none: try run.expect("end", within: 400)
        case .scripts(let scripts):
            let crowd = try scripts.map { try begin($0, in: "granted") }
            try run.expect("end", within: 400)
            for one in crowd { try one.expect("end", within: 400) }
        case .withdrawals(let scripts):
            let deadline = Date().addingTimeInterval(400)
            var line: String?
            repeat {
                let crowd = try scripts.map { try begin($0, in: "other") }
                line = run.line(within: 0.02)
                try fixture.revoke("other")
                try fixture.restore("other")
                // Whose directory is withdrawn before they are in it end without a word.
                for one in crowd where one.line(within: 400) != "end" && one.wait(within: 5) == nil {
                    throw TestFailure("process \(one.pid) hangs beside a withdrawal")
                }
            } while line == nil && Date() < deadline
            guard line == "end" else { throw TestFailure("expected the script's end, got \(line ?? "nothing")") }
        }
    }

    /// Runs a script through the mount alone, in a directory of its own below the grant of that name.
    private func begin(_ script: ParityScript, in grant: String) throws -> Child {
        number += 1
        let (run, file) = ("\(grant)/run-\(number)", "\(fixture.base)/script-\(number)")
        try script.description.appending("\n").write(toFile: file, atomically: false, encoding: .utf8)
        let behind = try fixture.directory("volume/\(run)")
        chmod(behind, 0o777)
        return try Child([Programs.parityProbe, "run", "\(mountpoint)/\(run)", behind, file, "\(fixture.base)/out-\(number)"])
    }

    private func firstDifference(of script: ParityScript) throws -> Difference? {
        let answers = try ["native.out", "mounted.out"].map {
            try String(contentsOfFile: "\(fixture.base)/\($0)", encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false)
        }
        for (index, call) in script.lines.enumerated() {
            let (ours, theirs) = (
                answers[1].count > index ? answers[1][index] : "nothing", answers[0].count > index ? answers[0][index] : "nothing"
            )
            if ours != theirs { return Difference(index: index, call: call, native: String(theirs), mounted: String(ours)) }
        }
        return nil
    }

    /// Removes every line that the difference does not need (delta debugging: ever smaller pieces,
    /// as long as the same call differs). Makes at most `limit` runs.
    func shrunk(_ script: ParityScript, _ found: Difference, limit: Int = 400) throws -> (ParityScript, Difference) {
        let kind = found.call.split(separator: " ")[1]
        var (lines, difference) = (Array(script.lines.prefix(found.index + 1)), found)
        var (piece, runs) = (max(1, lines.count / 2), 0)
        while runs < limit {
            var start = 0
            var removed = false
            while start < lines.count - 1, runs < limit {
                var fewer = lines
                fewer.removeSubrange(start..<min(start + piece, lines.count - 1))
                runs += 1
                if let still = try compare(ParityScript(lines: fewer)).difference, still.call.split(separator: " ")[1] == kind {
                    (lines, difference, removed) = (Array(fewer.prefix(still.index + 1)), still, true)
                } else {
                    start += piece
                }
            }
            if piece == 1, !removed { break }
            piece = max(1, piece / 2)
        }
        return (ParityScript(lines: lines), difference)
    }
}

/// Other work in the mount while a script is compared. Its results are ignored.
enum ParityCompany {
    case none
    /// Each is run in a directory of its own below the same grant.
    case scripts([ParityScript])
    /// They are run in another grant, which is withdrawn in the midst of them and restored, again and again.
    case withdrawals([ParityScript])
}

/// The filesystem that both directories lie on.
enum ParitySource: String, CaseIterable, Sendable {
    /// The directory of temporary files.
    case host
    case tmpfs, ext4, xfs, btrfs

    var hasZeroRange: Bool { self != .tmpfs }

    func mount(at directory: String, for fixture: MountFixture) throws {
        switch self {
        case .host: break
        case .tmpfs: try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=1G,mode=755", "none"], at: directory)
        case .ext4, .xfs, .btrfs:
            let image = fixture.base + "/image"
            try Command.run(["truncate", "-s", "2G", image]).orThrow()
            try Command.run(["mkfs.\(rawValue)", "-q", image]).orThrow()
            try fixture.mountOther(["mount", "-o", "loop", image], at: directory)
        }
    }
}
