import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The agent's own metrics: a small file in the store's directory `run`, written at each renewal. Nothing depends on it.
package struct AgentReport: Sendable, Equatable {
    /// The agent's pid.
    package var pid: Int64 = 0
    /// By the realtime clock, in nanoseconds since 1970. 0 means never.
    package var started: Int64 = 0
    package var renewed: Int64 = 0
    /// When the mounts last closed the fleet's grants because the lease was not renewed.
    package var fenced: Int64 = 0
    /// Counted since the agent's start.
    package var renewals: Int64 = 0
    package var failures: Int64 = 0
    package var fences: Int64 = 0
    /// The earliest end of the lease, by `BootClock`.
    package var lease: Int64 = 0
    /// The revision of the last known change, of the last change in the local store, and the one up to which every mount has confirmed.
    package var seen: Int64 = 0
    package var stored: Int64 = 0
    package var applied: Int64 = 0
    /// The fleet's active grants on this host, and those that cannot be applied.
    package var grants: Int64 = 0
    package var problems: Int64 = 0

    package init() {}

    private static let members: [(name: String, path: WritableKeyPath<AgentReport, Int64> & Sendable)] = [
        ("pid", \.pid), ("started", \.started), ("renewed", \.renewed), ("fenced", \.fenced), ("renewals", \.renewals),
        ("failures", \.failures),
        ("fences", \.fences), ("lease", \.lease), ("seen", \.seen), ("stored", \.stored), ("applied", \.applied), ("grants", \.grants),
        ("problems", \.problems),
    ]

    package static func path(in directory: String) -> String { directory + "/fleet-agent" }

    /// The result is nil if there is none, it is from another boot, or it is invalid.
    package init?(in runDirectory: String) {
        guard let bytes = try? File.contents(of: Array(AgentReport.path(in: runDirectory).utf8)), bytes.count < 4_096 else { return nil }
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n").map { $0.split(separator: " ") }
        guard lines.first?.elementsEqual(["boot", Boot.id[...]]) == true, lines.last?.elementsEqual(["end"]) == true else { return nil }
        for line in lines.dropFirst().dropLast() {
            guard line.count == 2, let value = Int64(line[1]) else { return nil }
            // Unknown values of a newer agent are ignored.
            if let member = AgentReport.members.first(where: { $0.name == line[0] }) { self[keyPath: member.path] = value }
        }
    }

    /// Best effort: a reader sees from the time stamp that it is old.
    package func write(in runDirectory: String) {
        let (file, fresh) = (AgentReport.path(in: runDirectory), AgentReport.path(in: runDirectory) + ".new")
        let members = AgentReport.members.map { "\($0.name) \(self[keyPath: $0.path])\n" }.joined()
        let bytes = Array("boot \(Boot.id)\n\(members)end\n".utf8)
        guard let descriptor = try? FileDescriptor.open(fresh.utf8, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600) else { return }
        if Glibc.write(descriptor.number, bytes, bytes.count) == bytes.count { rename(fresh, file) }
    }
}
