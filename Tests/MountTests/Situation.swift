import TestSupport
import Testing

/// The caller, the mounter, the kernel's cached state, and its cache mode. Every promise holds in
/// each combination.
struct Situation: Sendable, CustomTestStringConvertible {
    enum Mounting: String, Sendable { case byRoot, byUser }

    var cold = false
    var plainCaller = false
    var mounting = Mounting.byRoot
    var cache = "shared"
    /// Whether the kernel drops unused inodes (`ViewFS.prune`). Otherwise it does so only at many
    /// nodes.
    var prunes = false

    var testDescription: String {
        "\(prunes ? "pruned, " : "")\(cold ? "cold" : "warm"), \(plainCaller ? "plain user" : "root"), mounted \(mounting.rawValue), cache=\(cache)"
    }

    var caller: Identity { plainCaller ? Machine.plainUser ?? .current : .current }
    var owner: Identity { mounting == .byUser ? Machine.plainUser ?? .current : .current }
    var switches: [String: String] { prunes ? ["GRANTFS_TEST_PRUNED_FROM": "0"] : [:] }
    var options: String {
        plainCaller && mounting == .byRoot ? "allow_other,cache=\(cache)" : "cache=\(cache)"
    }

    /// What this machine and this user can do.
    static let all: [Situation] = {
        var list: [Situation] = []
        for cold in [false, true] {
            if Identity.isRoot {
                for cache in ["shared", "exclusive", "none"] { list.append(Situation(cold: cold, cache: cache)) }
                list.append(Situation(cold: cold, cache: "exclusive", prunes: true))
                if Machine.plainUser != nil { list.append(Situation(cold: cold, plainCaller: true)) }
            }
            for cache in ["shared", "exclusive"] where Machine.usersCanMount {
                list.append(Situation(cold: cold, plainCaller: true, mounting: .byUser, cache: cache, prunes: cache == "exclusive"))
            }
        }
        return list
    }()
}

/// A mount with a grant that a test revokes and another that must never notice, a probe in each.
struct ProbedMount {
    let fixture: MountFixture
    let situation: Situation
    let mountpoint: String
    let source: String
    var held: String { mountpoint + "/held" }
    var other: String { mountpoint + "/other" }

    /// `options`: of the mount, besides those of the situation. `stops`: whether tests stop the daemon (`StopPoints`).
    init(_ situation: Situation, options: String = "", switches: [String: String] = [:], stops: Bool = false) throws {
        self.situation = situation
        fixture = try MountFixture(owner: situation.owner)
        source = try fixture.source("held")
        try Probe.prepare(source, for: situation.caller)
        try Probe.prepare(try fixture.source("other"), for: situation.caller)
        for directory in [source, fixture.base + "/source/other"] {
            try fixture.grantfs("grant", directory).orThrow()
        }
        fixture.switches = situation.switches.merging(switches) { $1 }
        if stops { _ = try StopPoints(fixture) }
        mountpoint = try fixture.mount(options: situation.options + options)
        fixture.switches = [:]
    }

    func probe(_ directory: String) throws -> Probe {
        // A probe uses up the files that it unlinks, so the next one needs new ones.
        for name in ["held", "other"] { try Probe.prepare(fixture.base + "/source/" + name, for: situation.caller) }
        return try Probe(below: directory, cold: situation.cold, as: situation.caller)
    }

    func native() throws -> [String: String] { try Probe.native(in: try fixture.directory("native"), as: situation.caller) }

    /// What the protocol, and not grantfs, makes different from the native directory.
    static let differences: [String: Set<String>] = [
        // The kernel has no such request before Linux 6.1.
        "dirfd: openat-o_tmpfile": ["EOPNOTSUPP"],
        // Pages that are not cached are not waited for, and FUSE does not offer to.
        "fd-read: preadv2-nowait": ["EAGAIN", "EOPNOTSUPP"],
        // A handle of a FUSE inode is good for as long as the kernel remembers the inode.
        "handle: open_by_handle_at": ["ESTALE", "EOPNOTSUPP", "SKIP"],
    ]

    /// Every access gives what the same access gives natively.
    static func expectNative(_ results: [AccessResult], _ native: [String: String], _ when: String, without: Set<String> = []) {
        #expect(results.count >= 50)
        let wrong = results.filter { result in
            result.errno != native[result.row] && differences[result.row]?.contains(result.errno) != true && !without.contains(result.errno)
        }
        #expect(wrong.isEmpty, "\(when): \(wrong.map { "\($0.row) gives \($0.errno), natively \(native[$0.row] ?? "nothing")" })")
    }

    /// Every access is refused as the table of the revocation's effects says.
    static func expectRefused(_ results: [AccessResult], _ native: [String: String], _ when: String, cache: String = "shared") {
        #expect(results.count >= 50)
        let wrong = results.filter { $0.errno != "SKIP" && !isRefused($0, native, cache) }
        #expect(wrong.isEmpty, "\(when): \(wrong.map { "\($0.row) gives \($0.errno), must give \($0.after)" })")
    }

    /// Whether any access is not.
    static func areNotRefused(_ results: [AccessResult], _ native: [String: String], _ cache: String) -> Bool {
        results.contains { $0.errno != "SKIP" && !isRefused($0, native, cache) }
    }

    /// Calls that read a file's pages without an earlier request. Others request attributes, unless
    /// the kernel trusts its own.
    private static let splices: Set<String> = ["sendfile", "splice"]
    private static let reads: Set<String> = [
        "read", "fcntl-dupfd-read", "pread", "readv", "preadv", "preadv2", "io_uring-read", "io_uring-read-async", "io_submit-read",
    ]

    private static func isRefused(_ result: AccessResult, _ native: [String: String], _ cache: String) -> Bool {
        switch result.after {
        case "ANY": true
        // With write-back the kernel trusts the size it has, and tells it without asking: the size from before.
        case _ where result.row == "fd-read: lseek-end" && cache == "exclusive": true
        // Locks are the kernel's own there: they show nothing of the file.
        case _ where result.held == "fd-locked" && cache == "exclusive": true
        // A file that cannot be mapped shows nothing.
        case "SIGBUS" where result.errno == "ENODEV": true
        case "EACCES" where result.errno == "EIO" && Machine.losesErrorsOfReads:
            splices.contains(result.kind) || (cache == "exclusive" && reads.contains(result.kind))
        // Of itself it never ends on kernels before 6.9, and can be killed: see populate() of the probe.
        case "FAIL" where result.errno == "KILLED": result.row == "map-shared-touched: madvise-populate" && Machine.kernel < (6, 9)
        case "FAIL": result.errno != "OK" && result.errno != "WRONG"
        // What the caller may not do anyway fails with either reason.
        default: result.errno == result.after || (result.errno == native[result.row] && result.errno.hasPrefix("EP"))
        }
    }
}
