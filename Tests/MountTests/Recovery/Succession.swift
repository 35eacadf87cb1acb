import Foundation
import Glibc
import TestSupport
import Testing

/// A mount whose daemon is replaced by another one while it is used: the directory a with a file of 8,192 bytes.
struct Succession {
    /// What ends the first daemon.
    enum Way: String, CaseIterable, Sendable {
        case upgrade, death
        /// As `death`, on a kernel that cannot resend the requests of the first daemon (before
        /// Linux 6.9).
        case deathOnOldKernel
    }

    let fixture: MountFixture
    let way: Way
    let mount: String
    let source: String
    /// Of the next daemon.
    let stops: StopPoints?

    /// `limits`: words for prlimit(1), which the daemon is started with.
    init(
        _ way: Way = .upgrade, cache: String = "shared", owner: Identity = .current, switches: [String: String] = [:],
        limits: [String] = [], stops hasStops: Bool = false
    ) throws {
        self.way = way
        fixture = try MountFixture(owner: owner)
        source = try fixture.source("a")
        try Data(repeating: 0x61, count: 8192).write(to: URL(fileURLWithPath: source + "/file"))
        chown(source + "/file", owner.uid, owner.gid)
        try fixture.grant(source)
        fixture.switches = switches
        stops = hasStops ? try StopPoints(fixture) : nil
        if way == .deathOnOldKernel { fixture.switches["GRANTFS_TEST_NO_RESEND"] = "1" }
        let options = "cache=" + cache + (way == .upgrade ? "" : ",recover")
        if limits.isEmpty {
            mount = try fixture.mount(options: options)
        } else {
            mount = fixture.base + "/mount"
            mkdir(mount, 0o755)
            let mounting = [Programs.grantfs(in: fixture.environment), "mount", "default", mount, "-o", options]
            try Command.run(["prlimit"] + limits + mounting, environment: fixture.environment).orThrow()
        }
        // The command starts the next daemon.
        if !hasStops || way != .upgrade { fixture.switches = [:] }
    }

    /// Has the daemon replaced so many times.
    func replaceDaemon(_ times: Int = 1) throws {
        for _ in 0..<times {
            let before = try fixture.daemon(at: mount)
            switch way {
            case .upgrade:
                let output = try fixture.grantfs("upgrade", mount, "--json").orThrow()
                let document: Document = try output.decoded()
                let outcome = try #require(document.mounts.first)
                let after = try fixture.daemon(at: mount)
                #expect(outcome.upgraded && outcome.previousPid == before && outcome.pid == after && after != before, "\(output)")
            case .death, .deathOnOldKernel:
                kill(before, SIGKILL)
                try fixture.wait(until: "another daemon serves the mount") { try fixture.daemon(at: mount) != before }
            }
            try fixture.wait(until: "the old daemon has ended") { !Processes.isRunning(before) }
        }
    }

    /// Has the daemon replaced, and runs `body` while the next one has stopped at a point.
    func replaceDaemon(at point: String, _ body: () throws -> Void) throws {
        let before = try fixture.daemon(at: mount)
        stops?.arm(point)
        let upgrade =
            way == .upgrade
            ? try Child([Programs.grantfs(in: fixture.environment), "upgrade", mount], environment: fixture.environment) : nil
        if upgrade == nil { kill(before, SIGKILL) }
        try stops?.awaitStop(point)
        do {
            defer { stops?.goOn(point) }
            try body()
        }
        if let upgrade { #expect(upgrade.wait() == 0) }
    }

    /// Kills the daemon. Returns when the next one waits where the switch GRANTFS_TEST_RECOVER says “held”, until `goOn`.
    func killAndHold() throws {
        try Data().write(to: URL(fileURLWithPath: fixture.base + "/store/hold"))
        kill(try fixture.daemon(at: mount), SIGKILL)
        try fixture.wait(until: "the next daemon waits") { access(fixture.base + "/store/held", F_OK) == 0 }
    }
    func goOn() { unlink(fixture.base + "/store/hold") }

    /// A program that holds the file in these ways, and says what it can still do with it (`said`).
    func holder(_ kinds: [String], of name: String = "/a/file") throws -> Child {
        let child = try Child([Programs.attacker, "outlive", mount + name] + kinds)
        try child.expect("ready")
        return child
    }

    /// A read of a descriptor may fail with any error: see `Machine.losesErrorsOfReads`.
    static func said(_ holder: Child) throws -> String {
        holder.send("?")
        let said = try #require(holder.line(), "the holder says nothing")
        return Machine.losesErrorsOfReads ? said.replacingOccurrences(of: "fd EIO", with: "fd EACCES") : said
    }

    private struct Document: Decodable {
        struct Mount: Decodable {
            let upgraded: Bool
            let previousPid: pid_t
            let pid: pid_t?
        }
        let mounts: [Mount]
    }
}
