import Foundation
import TestSupport
import Testing

extension MountTests.AfterTheDaemon {
    /// A grant `a` with a file of two pages, mounted.
    struct Scene {
        let fixture: MountFixture
        let mount: String
        let daemon: pid_t
        let source: String
        var file: String { mount + "/a/file" }
        var native: String { source + "/file" }

        init(cache: String = "shared", owner: Identity = .current) throws {
            fixture = try MountFixture(owner: owner)
            source = try fixture.source("a")
            for name in ["file", "other"] {
                try Data(repeating: 0, count: 8192).write(to: URL(fileURLWithPath: source + "/" + name))
                chown(source + "/" + name, owner.uid, owner.gid)
            }
            try fixture.grant(source)
            mount = try fixture.mount(options: "cache=" + cache)
            daemon = try fixture.daemon(at: mount)
        }

        func holder(_ kinds: [String], of file: String? = nil, before: [String] = []) throws -> Child {
            let child = try Child(before + [Programs.attacker, "outlive", file ?? self.file] + kinds, identity: fixture.owner)
            try child.expect("ready")
            return child
        }

        func awaitEnd() throws { try fixture.wait(until: "the daemon has ended") { !Processes.isRunning(daemon) } }

        func revoke(_ more: String...) throws -> (status: Int32, mounts: [DeadConfirmation]) {
            let output = try fixture.grantfs(["revoke", "a", "--json"] + more)
            let changes: [DeadRevocation] = try output.decoded()
            return (output.status, changes.flatMap(\.mounts))
        }

        func mountAgain() throws { try fixture.mount() }
    }

    static func said(_ holder: Child) throws -> String {
        holder.send("?")
        return try #require(holder.line(), "the holder says nothing")
    }

    /// The same, where a read of a descriptor may fail with any error: see `Machine.losesErrorsOfReads`.
    static func saidOfReads(_ holder: Child) throws -> String {
        let said = try said(holder)
        return Machine.losesErrorsOfReads ? said.replacingOccurrences(of: "fd EIO", with: "fd ENOTCONN") : said
    }
}

struct DeadHolder: Decodable { let pid: Int32 }
struct DeadConfirmation: Decodable {
    let pid: Int32
    let confirmed: Bool
    let state: String?
    let reason: String?
    let holders: [DeadHolder]?
    let ended: [DeadHolder]?
}
struct DeadRevocation: Decodable { let mounts: [DeadConfirmation] }
struct DeadStatus: Decodable {
    struct Mount: Decodable {
        let state: String
        let holders: [DeadHolder]
    }
    let mounts: [Mount]
}
