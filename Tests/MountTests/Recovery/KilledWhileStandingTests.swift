import Foundation
import TestSupport
import Testing

// A thread of a daemon waits in a call that no signal ends, so its process outlives a kill, with
// all of its open files.
extension MountTests.AfterTheDaemon {
    @Test(
        "A daemon killed while a thread waits for a listing delays no later command",
        .enabled(if: MountTests.AHeldKernelLock.isPossible, "needs root, /dev/fuse and a plain user"),
        arguments: ["shared", "exclusive"], [SIGKILL, SIGTERM])
    func killedWhileAThreadStands(cache: String, signal: Int32) throws {
        let mounted = try MountTests.AHeldKernelLock.Mounted(cache: cache)
        let (fixture, mountpoint) = (mounted.fixture, mounted.mountpoint)
        let daemon = try fixture.daemon(at: mountpoint)
        defer { mounted.memory.end() }
        let attack = try mounted.hold([mounted.probed.held + "/listed0"])
        defer { attack.end() }
        let refused = try fixture.grantfs("revoke", "held", "--timeout", "1", "--json")
        #expect(refused.status == 3, "a thread stands: \(refused)")

        kill(daemon, signal)
        try fixture.wait(until: "all of it has ended that can") { Self.letters(of: daemon).filter { $0 != "Z" } == ["D"] }
        let output = try fixture.grantfs("status", "--json", within: 30)
        let document: StandingStatus = try output.decoded()
        #expect(output.status == 1 && document.mounts.map(\.state) == ["dead"], "\(output)")
        #expect(document.mounts.first?.holders.map(\.pid) == [attack.pid], "\(output)")
        if signal == SIGKILL {
            // /dev/fuse is open still, so it is the command that ends the waiting.
            for path in [mounted.probed.other + "/file", mountpoint] {
                let asked = try Command.run(["ls", path], as: mounted.probed.situation.caller, within: 10)
                #expect(asked.status != 0 && asked.errors.contains("not connected"), "\(asked)")
            }
        }
        let held = try fixture.grantfs("revoke", "other", "--timeout", "2", "--json", within: 30)
        let revoked: [StandingRevocation] = try held.decoded()
        let mount = try #require(revoked.first?.mounts.first)
        #expect(held.status == 3 && !mount.confirmed && mount.state == "dead" && mount.holders?.map(\.pid) == [attack.pid], "\(held)")

        // A new mount takes its place, despite holders of the dead one.
        #expect(try fixture.grantfs("mount", "default", mountpoint, within: 30).status == 0)
        #expect(try Command.run(["ls", mountpoint], within: 10).status == 0)
        let ended = try fixture.grantfs("revoke", "other", "--kill", "--timeout", "5", "--json", within: 30)
        let killed: [StandingRevocation] = try ended.decoded()
        #expect(ended.status == 0 && killed.flatMap(\.mounts).flatMap { $0.ended ?? [] }.map(\.pid) == [attack.pid], "\(ended)")
        try fixture.wait(until: "the thread is free, and the daemon gone") { Self.letters(of: daemon).allSatisfy { $0 == "Z" } }
        #expect(try fixture.status().mounts.count == 1)
        try fixture.grantfs("unmount", mountpoint).orThrow()
    }

    /// What each thread of a process is doing.
    private static func letters(of pid: pid_t) -> [Character] {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task")) ?? []
        return tasks.compactMap { task in
            let lines = Processes.kernelText("/proc/\(pid)/task/\(task)/status").split(separator: "\n")
            return lines.first { $0.hasPrefix("State:\t") }?.dropFirst(7).first
        }
    }
}

private struct StandingHolder: Decodable { let pid: Int32 }
private struct StandingStatus: Decodable {
    struct Mount: Decodable {
        let state: String
        let holders: [StandingHolder]
    }
    let mounts: [Mount]
}
private struct StandingRevocation: Decodable {
    struct Mount: Decodable {
        let confirmed: Bool
        let state: String?
        let holders: [StandingHolder]?
        let ended: [StandingHolder]?
    }
    let mounts: [Mount]
}
