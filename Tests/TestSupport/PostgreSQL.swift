import Foundation
import Glibc

/// A PostgreSQL server that belongs to one test. It has a user without privileges, a socket in a
/// directory of the test, and no port.
public final class PostgreSQL {
    /// The directory of the newest version's programs on Debian.
    public static let programs: String? = {
        let versions = ((try? FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql")) ?? []).compactMap { Int($0) }
        return versions.max().map { "/usr/lib/postgresql/\($0)/bin" }
    }()

    public let data: String
    private let sockets: String
    private static let user = Identity(uid: 65534, gid: 65534)

    /// - Parameters:
    ///   - directory: the parent of the data directory.
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

    /// Runs a PostgreSQL program, which must succeed, and returns its output.
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
        // Waits until transactions were committed, on a slow machine too.
        try wait { try run("psql", "-Atc", "select count(*) >= 100 from pgbench_history") == "t" }
        let server = try pid()
        // A stopped server starts no other process meanwhile. The next server starts only after all
        // processes of this one are gone.
        kill(server, SIGSTOP)
        let children = (try? String(contentsOfFile: "/proc/\(server)/task/\(server)/children", encoding: .utf8)) ?? ""
        let processes = [server] + children.split(separator: " ").compactMap({ pid_t($0) })
        for process in processes { kill(process, SIGKILL) }
        try wait { !processes.contains { Processes.isRunning($0) } }
        _ = client.wait()
        // The stale pid file claims that the server runs.
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
