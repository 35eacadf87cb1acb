import Foundation

/// A running access probe: it holds handles below a directory and tries every access on request.
public final class Probe {
    private let child: Child

    public init(below directory: String, cold: Bool = false, as identity: Identity = .current) throws {
        let program = Programs.probe(for: identity)
        child = try Child([program] + (cold ? ["--cold"] : []) + ["run", directory], identity: identity)
        try child.expect("ready")
    }

    /// A probe that `command` starts by execve(2).
    public init(running command: [String], environment: [String: String] = [:], as identity: Identity = .current) throws {
        child = try Child(command, identity: identity, environment: environment)
        try child.expect("ready", within: 60)
    }

    public var pid: Int32 { child.pid }

    public func attempt() throws -> [AccessResult] { try ask("go") }

    /// Closes and unmaps everything that the probe holds. Each of these must succeed, even after a
    /// revocation.
    public func letGo() throws -> [AccessResult] { try ask("close") }

    private func ask(_ what: String) throws -> [AccessResult] {
        child.send(what)
        var results: [AccessResult] = []
        while let line = child.line(within: 120) {
            if line == "done" { return results }
            results.append(try JSONDecoder().decode(AccessResult.self, from: Data(line.utf8)))
        }
        throw TestFailure("the probe ended or hung after \(results.count) accesses, the last was \(results.last?.row ?? "none")")
    }

    /// Makes the files of a probe below a granted directory, from outside any mount.
    public static func prepare(_ directory: String, for identity: Identity = .current) throws {
        try Command.run([Programs.probe, "setup", directory, "\(identity.uid)", "\(identity.gid)"]).orThrow()
    }

    /// The results of every access without a mount. The same calls must give the same results
    /// through a mount.
    public static func native(in directory: String, as identity: Identity = .current) throws -> [String: String] {
        try prepare(directory, for: identity)
        let probe = try Probe(below: directory, as: identity)
        return Dictionary(try probe.attempt().map { ($0.row, $0.errno) }) { $1 }
    }

    /// Runs one system call in its own process and returns the name of its errno, or `OK`.
    public static func call(_ arguments: String..., as identity: Identity = .current) throws -> String {
        try call(arguments, as: identity)
    }

    public static func call(_ arguments: [String], as identity: Identity = .current) throws -> String {
        try Command.run([Programs.probe(for: identity), "call"] + arguments, as: identity, within: 60).orThrow().trimmed
    }

    /// Starts another role of the same program.
    public static func role(_ arguments: [String], as identity: Identity = .current) throws -> Child {
        try Child([Programs.probe(for: identity)] + arguments, identity: identity)
    }
}

/// Threads that use a granted directory in every way while a test revokes and restores it.
public final class Load {
    private let child: Child

    /// `daemonsDie`: daemons die during the load. A change that may have been done may then fail
    /// with EIO.
    public init(below directory: String, daemonsDie: Bool = false) throws {
        child = try Probe.role(["load", directory] + (daemonsDie ? ["dying"] : []))
        try child.expect("ready")
    }

    /// From now on no operation that begins may succeed.
    public func revoked() throws {
        child.send("revoked")
        try child.expect("ok")
    }

    /// From now on new operations may succeed again.
    public func granted() throws {
        child.send("granted")
        try child.expect("ok")
    }

    public func stop() throws -> [WorkerResult] {
        child.send("stop")
        var results: [WorkerResult] = []
        while let line = child.line(within: 120) {
            if line == "done" { return results }
            results.append(try JSONDecoder().decode(WorkerResult.self, from: Data(line.utf8)))
        }
        throw TestFailure("the load ended or hung: a thread never came back")
    }
}
