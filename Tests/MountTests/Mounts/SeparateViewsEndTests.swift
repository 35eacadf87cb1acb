import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Which mounts of several views end, and which stay.
    @Suite struct SeparateViewsEnd {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            mountpoint = try fixture.directory("mount")
            for (view, name) in [("job-1", "held"), ("job-2", "other")] {
                let source = try fixture.source(name)
                try Data(name.utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source, view: view)
            }
        }

        private func mount(_ options: String...) throws {
            try fixture.grantfs(["mount", "--views", "job-*", mountpoint] + options).orThrow()
        }

        private func read(_ path: String) throws -> String { try Command.run(["cat", mountpoint + "/" + path], within: 30).text }

        /// The process that starts the daemons.
        private func manager() throws -> pid_t { Processes.parent(of: try fixture.daemon(at: mountpoint)) }

        @Test("A refused second mount of the same views leaves the first one alone", arguments: ["job-*", "job-1*"])
        func refused(pattern: String) throws {
            try mount()
            let daemons = try ["", "/job-1", "/job-2"].map { try fixture.daemon(at: mountpoint + $0) }
            let second = try fixture.grantfs("mount", "--views", pattern, mountpoint)
            #expect(second.status == 1 && second.errors.contains("mounted there already"), "\(second)")
            #expect(!second.errors.contains("user_allow_other"), "\(second)")
            #expect(try ["", "/job-1", "/job-2"].map { try fixture.daemon(at: mountpoint + $0) } == daemons)
            #expect(try read("job-1/held/file") == "held" && read("job-2/other/file") == "other")
        }

        @Test("The process of an earlier mount mounts nothing into the next one")
        func successor() throws {
            try mount("-o", "rw")
            let earlier = try manager()
            // It notices the end of its mount only after the next one has begun.
            kill(earlier, SIGSTOP)
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try mount("-o", "ro")
            kill(earlier, SIGCONT)
            try fixture.wait(until: "the earlier process has ended") { !Processes.isRunning(earlier) }
            let source = try fixture.source("new")
            try fixture.grant(source, view: "job-3")
            #expect(try read("job-1/held/file") == "held")
            let touched = try Command.run(["touch", mountpoint + "/job-3/new/file"])
            #expect(touched.errors.contains("Read-only file system"), "\(touched)")
        }

        @Test("A mount of several views refuses to be remounted")
        func remounted() throws {
            try mount()
            let output = try fixture.grantfs("mount", "--views", "job-*", mountpoint, "-o", "remount,ro")
            #expect(output.status == 1 && output.errors.contains("several views"), "\(output)")
            try Command.run(["touch", mountpoint + "/job-1/held/new"]).orThrow()
        }

        @Test("The death of the mountpoints' daemon is a failure that leaves no mount")
        func death() throws {
            let manager = try Child(
                [Programs.grantfs, "mount", "-f", "--views", "job-*", mountpoint], identity: fixture.owner, environment: fixture.environment
            )
            try fixture.wait(until: "both views are mounted") { fixture.mountpoints.count == 3 }
            try fixture.wait(until: "the mountpoints have a daemon") { (try? fixture.daemon(at: mountpoint)) != nil }
            try fixture.killDaemon(at: mountpoint)
            #expect(manager.wait(within: 30) == 1)
            #expect(fixture.mountpoints.isEmpty)
            try mount()
            #expect(try read("job-2/other/file") == "other")
        }

        @Test("`status` and `doctor` report the death of the process behind `mount --views`")
        func abandoned() throws {
            try mount()
            #expect(try fixture.grantfs("status").status == 0)
            #expect(try mountsViews() == [true, nil, nil])
            let message = "no process mounts views at \(mountpoint) any more"
            #expect(try !fixture.grantfs("doctor").text.contains(message))
            let first = try manager()
            kill(first, SIGKILL)
            try fixture.wait(until: "`status` reports it") { try fixture.grantfs("status").status == 1 }
            #expect(try fixture.grantfs("status").errors.contains(message))
            #expect(try mountsViews() == [false, nil, nil])
            #expect(try fixture.grantfs("doctor").text.contains(message))
            #expect(try read("job-1/held/file") == "held")
            try fixture.grantfs("unmount", mountpoint).orThrow()
            try mount()
            #expect(try fixture.grantfs("status").status == 0)
        }

        /// Of each mount, the mountpoints first.
        private func mountsViews() throws -> [Bool?] {
            struct Document: Decodable {
                struct Mount: Decodable {
                    let mountpoint: String
                    let mountsViews: Bool?
                }
                let mounts: [Mount]
            }
            let document: Document = try fixture.grantfs("status", "--json").decoded()
            return document.mounts.sorted { $0.mountpoint < $1.mountpoint }.map(\.mountsViews)
        }

        @Test(
            "The process behind `mount --views` ends with its mount, even without a store",
            .enabled(if: Identity.isRoot, "needs root"))
        func withoutStore() throws {
            try mount()
            let process = try manager()
            try FileManager.default.removeItem(atPath: fixture.store)
            try Command.run(["umount", "-R", mountpoint]).orThrow()
            try fixture.wait(until: "the process has ended") { !Processes.isRunning(process) }
        }

        @Test("Views whose names differ only in their composition are two views")
        func composition() throws {
            for view in ["job-caf\u{E9}", "job-cafe\u{301}"] { try fixture.grant(try fixture.source("held"), name: "a", view: view) }
            try mount()
            #expect(fixture.mountpoints.count == 5)
            #expect(try read("job-caf\u{E9}/a/file") == "held" && read("job-cafe\u{301}/a/file") == "held")
            try fixture.grantfs("revoke", "--view", "job-caf\u{E9}", "a").orThrow()
            #expect(try read("job-caf\u{E9}/a/file") == "" && read("job-cafe\u{301}/a/file") == "held")
        }
    }
}
