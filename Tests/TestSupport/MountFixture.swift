import Foundation
import Glibc

/// A directory with its own store, granted directories and mountpoints. When the fixture is destroyed, even after a
/// failure, the mounts and daemons below its directory are detached and killed. No others are.
public final class MountFixture {
    public let base: String
    public let store: String
    /// The user that grants, mounts and revokes.
    public let owner: Identity
    private var extraMounts: [String] = []

    /// - Parameter place: the parent directory. Default: the directory of temporary files. Tests of
    ///   path lengths choose another.
    public init(owner: Identity = .current, in place: String = Programs.temporaryDirectory) throws {
        self.owner = owner
        Machine.takeUsualUmask()
        var template = Array("\(place)/grantfs-test.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw TestFailure("mkdtemp: \(String(cString: strerror(errno)))") }
        let made = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        // The canonical path is what mountinfo shows.
        base = URL(fileURLWithPath: made).resolvingSymlinksInPath().path
        store = base + "/store"
        // For the report of what tests leave behind.
        print("a fixture in \(base)")
        chmod(base, 0o755)
        for name in ["source", "mount", "native", "outside"] { _ = try directory(name) }
        chown(base, owner.uid, owner.gid)
    }

    deinit { finish() }

    /// A directory below the fixture's, made if it is missing, and owned by the fixture's owner.
    @discardableResult
    public func directory(_ name: String) throws -> String {
        let path = base + "/" + name
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        chown(path, owner.uid, owner.gid)
        return path
    }

    /// A directory to grant.
    public func source(_ name: String) throws -> String { try directory("source/" + name) }

    /// Runs grantfs with this fixture's store.
    @discardableResult
    public func grantfs(_ arguments: String..., within seconds: Double = 120) throws -> Output {
        try grantfs(arguments, within: seconds)
    }

    @discardableResult
    public func grantfs(_ arguments: [String], as identity: Identity? = nil, within seconds: Double = 120) throws -> Output {
        let identity = identity ?? owner
        return try Command.run(
            [Programs.grantfs(in: environment, for: identity)] + arguments, as: identity, environment: environment, within: seconds)
    }

    public var environment: [String: String] { ["GRANTFS_STORE": store].merging(switches) { $1 } }
    /// Additional environment variables for grantfs.
    public var switches: [String: String] = [:]

    /// Grants a directory and returns the grant's id.
    @discardableResult
    public func grant(_ directory: String, name: String? = nil, view: String? = nil, _ more: String...) throws -> String {
        var arguments = ["grant", directory]
        if let view { arguments += ["--view", view] }
        if let name { arguments += ["--name", name] }
        let output = try grantfs(arguments + more).orThrow()
        guard let id = output.trimmed.split(whereSeparator: \.isWhitespace).first(where: { $0.count == 32 }) else {
            throw TestFailure("no id of a grant in: \(output)")
        }
        return String(id)
    }

    /// Mounts a view and returns the mountpoint. `isNew`: no grant names the view yet.
    @discardableResult
    public func mount(
        _ view: String = "default", at name: String = "mount", options: String? = nil, isNew: Bool = false
    ) throws -> String {
        let mountpoint = base + "/" + name
        // The directory of a dead mount exists, but stat(2) fails.
        if mkdir(mountpoint, 0o755) == 0 { chown(mountpoint, owner.uid, owner.gid) }
        try grantfs(["mount", view, mountpoint] + (isNew ? ["--new"] : []) + (options.map { ["-o", $0] } ?? [])).orThrow()
        return mountpoint
    }

    @discardableResult
    public func revoke(_ arguments: String...) throws -> [RevocationDocument] {
        try grantfs(["revoke"] + arguments + ["--json"]).orThrow().decoded()
    }

    public func restore(_ selectors: String...) throws { try grantfs(["restore"] + selectors).orThrow() }
    public func status() throws -> StatusDocument { try grantfs("status", "--timeout", "20", "--json").orThrow().decoded() }

    /// The metrics of every mount of the store.
    public func metrics() throws -> OpenMetricsText { try OpenMetricsText(grantfs("metrics", "--timeout", "20").orThrow().text) }

    /// How many requests of each kind all daemons of the store have served.
    public func requests() throws -> [String: Int] {
        var counts: [String: Int] = [:]
        for line in try grantfs("metrics", "--timeout", "20").orThrow().text.split(separator: "\n")
        where line.hasPrefix("grantfs_requests_total{") {
            let parts = line.components(separatedBy: ",kind=\"")
            guard parts.count == 2, let quote = parts[1].firstIndex(of: "\""), let count = Int(parts[1].split(separator: " ").last ?? "")
            else { throw TestFailure("no count of requests: \(line)") }
            counts[String(parts[1][..<quote]), default: 0] += count
        }
        return counts
    }

    public func list(_ arguments: String...) throws -> [GrantDocument] {
        try grantfs(["list", "--json"] + arguments).orThrow().decoded()
    }

    /// The daemon of a mountpoint.
    public func daemon(at mountpoint: String) throws -> pid_t {
        // `status` looks through all processes for holders, which takes ten times as long.
        let lines = try grantfs("metrics", "--timeout", "20").text.split(separator: "\n")
        let up = lines.first { $0.hasPrefix("grantfs_up{") && $0.contains(",mountpoint=\"\(mountpoint)\",") && $0.hasSuffix(" 1") }
        if let pid = up?.components(separatedBy: "pid=\"").last.flatMap({ pid_t($0.prefix { $0.isNumber }) }) { return pid }
        guard let mount = try status().mounts.first(where: { $0.mountpoint == mountpoint }) else {
            throw TestFailure("status knows no mount at \(mountpoint)")
        }
        return mount.pid
    }

    /// Sends a signal to the daemon of a mountpoint. After SIGKILL it waits until the daemon is
    /// gone.
    public func killDaemon(at mountpoint: String, with signal: Int32 = SIGKILL) throws {
        let pid = try daemon(at: mountpoint)
        guard kill(pid, signal) == 0 else { throw TestFailure("there is no daemon \(pid)") }
        if signal == SIGKILL { try wait(until: "the daemon is gone") { !Processes.isRunning(pid) } }
    }

    /// Mounts another filesystem for this fixture, which is unmounted with it. Needs root.
    public func mountOther(_ arguments: [String], at directory: String) throws {
        try Command.run(arguments + [directory]).orThrow()
        extraMounts.append(directory)
    }

    /// Checks the condition every 5 ms until it is true, and a last time at the deadline, so that a
    /// suspended machine causes no failure.
    public func wait(until what: String, within seconds: Double = 30, _ condition: () throws -> Bool) throws {
        let deadline = Machine.deadline(seconds: seconds)
        while true {
            let asked = Machine.milliseconds
            if try condition() { return }
            if asked > deadline { throw TestFailure("not within \(seconds) s: \(what)") }
            // A condition that runs a command takes at most a quarter of a processor.
            pause(milliseconds: Int(min(200, max(5, 3 * (Machine.milliseconds - asked)))))
        }
    }

    /// The mountpoints below the fixture's directory from mountinfo, innermost first.
    public var mountpoints: [String] {
        return Processes.kernelText("/proc/self/mountinfo").split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ")
            return fields.count > 4 && fields[4].hasPrefix(base + "/") ? String(fields[4]) : nil
        }.reversed()
    }

    /// Detaches the mounts, kills the daemons and removes the directory. `deinit` does the same. A
    /// test that needs the fixture only for its mount calls this at its end.
    public func finish() {
        var ended = programs
        for pid in ended { kill(pid, SIGKILL) }
        for _ in 0..<8 {
            let left = mountpoints
            if left.isEmpty { break }
            for mountpoint in left {
                let detach = Identity.isRoot ? ["umount", "-l", mountpoint] : ["fusermount3", "-uz", mountpoint]
                _ = try? Command.run(detach, within: 60)
            }
        }
        removeWorkplaces()
        // A program that has not ended yet makes files in a store while it is removed, and a keeper starts another daemon.
        let deadline = Machine.deadline(seconds: 20)
        while Machine.milliseconds < deadline {
            let others = programs
            for pid in others { kill(pid, SIGKILL) }
            ended += others
            if others.isEmpty, !ended.contains(where: Processes.isRunning) { break }
            pause(milliseconds: 5)
        }
        if mountpoints.isEmpty { _ = try? Command.run(["rm", "-rf", "--one-file-system", base], within: 120) }
    }

    /// The running programs of grantfs, or built beside the tests, that were started with a path below the fixture's
    /// directory.
    private var programs: [pid_t] {
        let built = URL(fileURLWithPath: Programs.noteEditor).resolvingSymlinksInPath().deletingLastPathComponent().path + "/"
        return Processes.all.filter { pid in
            let program = Processes.program(pid)
            guard pid != getpid(), program.contains("/grantfs") || program.hasPrefix(built) else { return false }
            return Processes.commandLine(pid).contains(base) || Processes.environment(pid).contains(base)
        }
    }
}

extension MountFixture {
    /// Removes the directories that killed daemons left beside documents elsewhere, using the
    /// records in the fixture's stores.
    private func removeWorkplaces() {
        for run in [store + "/run/", base + "/data/grantfs/run/"] {
            let files = (try? FileManager.default.contentsOfDirectory(atPath: run)) ?? []
            for file in files where file.hasPrefix("document-") && file.hasSuffix(".place") { Self.removeWorkplace(run + file) }
        }
    }

    private static func removeWorkplace(_ record: String) {
        let parts = (FileManager.default.contents(atPath: record) ?? Data()).split(separator: 0).prefix(2).map {
            String(decoding: $0, as: UTF8.self)
        }
        guard parts.count == 2, parts[1].hasPrefix(".grantfs-"), !parts[1].contains("/") else { return }
        _ = try? Command.run(["rm", "-rf", "--one-file-system", parts[0] + "/" + parts[1]], within: 60)
    }
}

/// Processes as /proc shows them.
public enum Processes {
    /// The whole text of a file that the kernel generates on reading. Foundation stops after the
    /// first page of such a file.
    public static func kernelText(_ path: String) -> String {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count <= 0 { return String(decoding: bytes, as: UTF8.self) }
            bytes += buffer.prefix(count)
        }
    }

    static var all: [pid_t] { ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) } }
    static func program(_ pid: pid_t) -> String { (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/exe")) ?? "" }
    static func commandLine(_ pid: pid_t) -> String {
        FileManager.default.contents(atPath: "/proc/\(pid)/cmdline").map { String(decoding: $0, as: UTF8.self) } ?? ""
    }
    static func environment(_ pid: pid_t) -> String { kernelText("/proc/\(pid)/environ") }
    /// Whether one of its threads is in an uninterruptible wait for longer than a moment. A busy
    /// machine has short ones all the time.
    public static func isInKernel(_ pid: pid_t) -> Bool {
        var waiting = Set((try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? [])
        for look in 0..<10 where !waiting.isEmpty {
            if look > 0 { usleep(20_000) }
            waiting = waiting.filter { kernelText("/proc/\(pid)/task/\($0)/stat").contains(") D ") }
        }
        return !waiting.isEmpty
    }
    /// The keeper processes beside the daemons of a mountpoint.
    public static func keepers(of mountpoint: String) -> [pid_t] {
        all.filter { pid in
            let words = commandLine(pid).split(separator: "\0")
            return words.starts(with: ["grantfs", "keeper"])
                && words.drop { $0 != "--" }.starts(with: ["--", Substring(mountpoint)])
        }
    }
    /// The running children of a process.
    public static func children(of parent: pid_t) -> [pid_t] {
        all.filter { pid in
            let fields = kernelText("/proc/\(pid)/stat").split(separator: ")").last?.split(separator: " ") ?? []
            return fields.count > 1 && fields[0] != "Z" && fields[1] == "\(parent)"
        }
    }
    /// The parent of a process, or 0 if there is no such process.
    public static func parent(of pid: pid_t) -> pid_t {
        let fields = kernelText("/proc/\(pid)/stat").split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 1 ? pid_t(fields[1]) ?? 0 : 0
    }
    public static func name(of pid: pid_t) -> String { kernelText("/proc/\(pid)/comm").trimmingCharacters(in: .whitespacesAndNewlines) }
    /// VmRSS, or 0 if there is no such process.
    public static func residentKilobytes(_ pid: pid_t) -> Int {
        let status = (try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)) ?? ""
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) } ?? 0
    }

    /// The memory of a process that no file backs.
    public static func anonymousKilobytes(_ pid: pid_t) -> Int {
        let text = (try? String(contentsOfFile: "/proc/\(pid)/smaps_rollup", encoding: .utf8)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix("Anonymous:") }
        return line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) } ?? 0
    }

    /// Whether any of its threads still runs. The first thread becomes a zombie as soon as it ends,
    /// but the last thread closes the process's descriptors.
    public static func isRunning(_ pid: pid_t) -> Bool {
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
        return threads.contains { thread in
            guard let stat = try? String(contentsOfFile: "/proc/\(pid)/task/\(thread)/stat", encoding: .utf8) else { return false }
            return stat.split(separator: ")").last?.split(separator: " ").first.map { $0 != "Z" && $0 != "X" } ?? false
        }
    }
}
