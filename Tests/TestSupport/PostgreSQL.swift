import Foundation
import Glibc

/// A server of PostgreSQL of a test's own: a user without privileges, a socket in a directory of the test's, no port.
public final class PostgreSQL {
    /// Where Debian has the newest version's programs.
    public static let programs: String? = {
        let versions = ((try? FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql")) ?? []).compactMap { Int($0) }
        return versions.max().map { "/usr/lib/postgresql/\($0)/bin" }
    }()

    public let data: String
    private let sockets: String
    private static let user = Identity(uid: 65534, gid: 65534)

    /// - Parameters:
    ///   - directory: where the data directory is made.
    ///   - sockets: an empty directory.
    public init(in directory: String, sockets: String) throws {
        guard Self.programs != nil else { throw TestFailure("PostgreSQL is not installed") }
        data = directory + "/postgres/data"
        self.sockets = sockets
        guard mkdir(directory + "/postgres", 0o700) == 0, chown(directory + "/postgres", Self.user.uid, Self.user.gid) == 0,
            chown(sockets, Self.user.uid, Self.user.gid) == 0
        else { throw TestFailure("cannot make \(directory)/postgres") }
    }

    private var environment: [String: String] {
        [
            "PATH": "\(Self.programs!):/usr/bin:/bin", "PGHOST": sockets, "PGUSER": "postgres", "PGDATABASE": "postgres",
            "HOME": "/nonexistent",
            "LC_ALL": "C",
        ]
    }

    /// Runs one of its programs, which must succeed, and gives what it printed.
    @discardableResult
    public func run(_ command: String...) throws -> String {
        try Command.run(command, as: Self.user, environment: environment, within: 180).orThrow().trimmed
    }

    public func configure() throws {
        let settings = "listen_addresses = ''\nunix_socket_directories = '\(sockets)'\nshared_buffers = 16MB\nmax_wal_size = 64MB\n"
        guard let file = FileHandle(forWritingAtPath: data + "/postgresql.conf") else { throw TestFailure("no \(data)/postgresql.conf") }
        try file.seekToEnd()
        try file.write(contentsOf: Data(settings.utf8))
        try file.close()
    }

    public func start() throws { try run("pg_ctl", "-w", "-t", "170", "-D", data, "-l", sockets + "/log", "start") }

    /// Kills the server and all its processes with SIGKILL while clients work.
    public func crashUnderLoad() throws {
        let client = try Child(["pgbench", "-n", "-c", "3", "-T", "120"], identity: Self.user, environment: environment)
        // Something was committed, however slow the machine.
        try wait { try run("psql", "-Atc", "select count(*) >= 100 from pgbench_history") == "t" }
        let server = try pid()
        // Stopped, so that it starts no other process meanwhile; the next server starts only when all of them are gone.
        kill(server, SIGSTOP)
        let children = (try? String(contentsOfFile: "/proc/\(server)/task/\(server)/children", encoding: .utf8)) ?? ""
        let processes = [server] + children.split(separator: " ").compactMap({ pid_t($0) })
        for process in processes { kill(process, SIGKILL) }
        try wait { !processes.contains { Processes.isRunning($0) } }
        _ = client.wait()
        // What says that it runs, which it does not.
        unlink(data + "/postmaster.pid")
        for name in try FileManager.default.contentsOfDirectory(atPath: sockets) where name.hasPrefix(".s.") {
            unlink(sockets + "/" + name)
        }
    }

    private func wait(until condition: () throws -> Bool) throws {
        let deadline = Machine.milliseconds + 60_000
        while try !condition() {
            guard Machine.milliseconds < deadline else { throw TestFailure("the server is not as it was to be within a minute") }
            pause(milliseconds: 50)
        }
    }

    private func pid() throws -> pid_t {
        let text = try String(contentsOfFile: data + "/postmaster.pid", encoding: .utf8)
        guard let pid = text.split(separator: "\n").first.flatMap({ pid_t($0) }), pid > 1 else {
            throw TestFailure("the server has no process id")
        }
        return pid
    }

    /// Ends the server if it runs.
    public func stop() {
        if let pid = try? pid() { kill(pid, SIGQUIT) }
    }
}
