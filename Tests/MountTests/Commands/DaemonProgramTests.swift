import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// How `grantfs` finds `grantfsd`.
    @Suite struct DaemonProgramTests {
        private let fixture: MountFixture
        private let directory: String

        init() throws {
            fixture = try MountFixture()
            directory = try fixture.directory("programs/bin")
            try Command.run(["cp", Programs.grantfs, directory + "/grantfs"]).orThrow()
            try fixture.grant(try fixture.source("docs"))
            try fixture.directory("mount")
        }

        private var mountpoint: String { fixture.base + "/mount" }

        private func install(at place: String) throws -> String {
            let path = try fixture.directory("programs/" + place) + "/grantfsd"
            try Command.run(["cp", Programs.companions[0], path]).orThrow()
            return path
        }

        private func mount(path: String = "/usr/bin:/bin", _ options: String...) throws -> Output {
            var environment = fixture.environment
            environment["PATH"] = path
            return try Command.run([directory + "/grantfs", "mount", "default", mountpoint] + options, environment: environment)
        }

        private func program(of daemon: pid_t) throws -> String {
            try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(daemon)/exe")
        }

        @Test("The daemon of a mount is the grantfsd beside grantfs, or else in ../libexec/grantfs")
        func places() throws {
            let installed = try install(at: "libexec/grantfs")
            try mount().orThrow()
            #expect(try program(of: fixture.daemon(at: mountpoint)) == installed)
            try fixture.grantfs("unmount", mountpoint).orThrow()
            let beside = try install(at: "bin")
            try mount().orThrow()
            let daemon = try fixture.daemon(at: mountpoint)
            #expect(try program(of: daemon) == beside)
            #expect(Processes.name(of: daemon) == "grantfs")
            try fixture.grantfs("unmount", mountpoint).orThrow()
        }

        @Test("A daemon inherits no descriptor of its program")
        func descriptors() throws {
            let beside = try install(at: "bin")
            try mount().orThrow()
            let daemon = try fixture.daemon(at: mountpoint)
            let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon)/fd")
            let targets = open.compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(daemon)/fd/\($0)") }
            #expect(!targets.isEmpty && !targets.contains(beside), "\(targets)")
            try fixture.grantfs("unmount", mountpoint).orThrow()
        }

        @Test("Without grantfsd a mount fails with a message that names the package, and PATH is not searched")
        func missing() throws {
            let elsewhere = try install(at: "elsewhere")
            let output = try mount(path: (elsewhere as NSString).deletingLastPathComponent + ":/usr/bin:/bin")
            #expect(output.status == 1 && output.errors.contains("grantfsd is missing"), "\(output)")
            #expect(output.errors.contains("\(directory)/grantfsd") && output.errors.contains("package grantfs"), "\(output)")
            let doctor = try Command.run([directory + "/grantfs", "doctor"], environment: fixture.environment)
            #expect(doctor.status == 1 && doctor.text.contains("PROBLEM  daemon: grantfsd is missing"), "\(doctor)")
        }

        @Test("A grantfsd that other users can change is not started")
        func unprotected() throws {
            let beside = try install(at: "bin")
            chmod(beside, 0o777)
            let output = try mount()
            #expect(output.status == 1 && output.errors.contains("not as protected"), "\(output)")
        }

        @Test("A link, a file with a set-id bit and grantfs itself are not started as grantfsd")
        func wrongFiles() throws {
            let beside = directory + "/grantfsd"
            symlink("/bin/true", beside)
            #expect(try mount().errors.contains("it is not a regular file"))
            unlink(beside)
            link(directory + "/grantfs", beside)
            #expect(try mount().errors.contains("it is grantfs itself"))
            unlink(beside)
            _ = try install(at: "bin")
            chmod(beside, 0o4755)
            #expect(try mount().errors.contains("it has a set-id bit"))
        }

        @Test("A copy of grantfs in the place of grantfsd does not start itself for ever")
        func copyOfGrantfs() throws {
            try Command.run(["cp", directory + "/grantfs", directory + "/grantfsd"]).orThrow()
            let output = try mount()
            #expect(output.status != 0 && output.errors.contains("it is grantfs itself"), "\(output)")
        }

        @Test("A grantfsd that another user may have placed in a directory for all is not started", .enabled(if: Identity.isRoot))
        func openDirectories() throws {
            let place = try fixture.directory("programs/libexec/grantfs") + "/grantfsd"
            try Command.run(["cp", Programs.companions[0], place]).orThrow()
            for directory in ["programs/libexec/grantfs", "programs/libexec", "programs"] {
                chmod("\(fixture.base)/\(directory)", 0o1777)
                #expect(try mount().errors.contains("other users may have put it there"), "\(directory)")
                chmod("\(fixture.base)/\(directory)", 0o755)
            }
            // A hard link in a directory such as /tmp.
            link(place, directory + "/grantfsd")
            chmod(directory, 0o1777)
            #expect(try mount().errors.contains("other users may have put it there"))
        }

        @Test("A grantfsd in a directory that its owner's group may write to is started", .enabled(if: Identity.isRoot))
        func directoryOfAGroup() throws {
            let owner = try #require(Machine.plainUser)
            for file in [try install(at: "bin"), directory + "/grantfs", directory] {
                chown(file, owner.uid, owner.gid)
                chmod(file, 0o775)
            }
            try mount().orThrow()
            try fixture.grantfs("unmount", mountpoint).orThrow()
        }

        @Test("A grantfsd that another group or user may change is not started", .enabled(if: Identity.isRoot))
        func otherWriters() throws {
            let owner = try #require(Machine.plainUser)
            let beside = try install(at: "bin")
            for file in [beside, directory + "/grantfs"] { chmod(file, 0o775) }
            try mount().orThrow()
            try fixture.grantfs("unmount", mountpoint).orThrow()
            chown(beside, 0, owner.gid)
            #expect(try mount().errors.contains("not as protected"))
            chown(beside, 0, 0)
            try Command.run(["setfacl", "-m", "u:\(owner.uid):rw", beside]).orThrow()
            #expect(try mount().errors.contains("not as protected"))
        }

        @Test("Directories are examined although grantfsd cannot run, and doctor reports it")
        func unableToRun() throws {
            try Command.run(["cp", "/bin/false", directory + "/grantfsd"]).orThrow()
            let source = try fixture.source("moved")
            try fixture.grant(source)
            try #require(rename(source, source + "-away") == 0)
            let output = try Command.run([directory + "/grantfs", "revoke", "--path", source + "-away"], environment: fixture.environment)
            #expect(output.status == 0, "\(output)")
            let doctor = try Command.run([directory + "/grantfs", "doctor"], environment: fixture.environment)
            #expect(doctor.status == 1 && doctor.text.contains("of another version than grantfs, or cannot run"), "\(doctor)")
        }

        @Test("A command that is started by a path below /proc/self/fd gets its descriptors")
        func commandsByDescriptor() throws {
            _ = try install(at: "bin")
            try mount().orThrow()
            defer { _ = try? fixture.grantfs("unmount", mountpoint) }
            let script = "exec 7</bin/cat 8<<<inherited; exec \"$@\""
            let words = ["coordinate", "read", mountpoint + "/docs", "--", "/proc/self/fd/7", "/proc/self/fd/8"]
            let output = try Command.run(["bash", "-c", script, "bash", directory + "/grantfs"] + words, environment: fixture.environment)
            #expect(output.status == 0 && output.text == "inherited\n", "\(output)")
        }

        @Test("A mount in the foreground keeps the process that was started")
        func foreground() throws {
            let beside = try install(at: "bin")
            let child = try Child([directory + "/grantfs", "mount", "-f", "default", mountpoint], environment: fixture.environment)
            try fixture.wait(until: "it is mounted") { (try? fixture.daemon(at: mountpoint)) == child.pid }
            #expect(try program(of: child.pid) == beside)
            #expect(Processes.name(of: child.pid) == "grantfs")
            kill(child.pid, SIGTERM)
            #expect(child.wait() == 0)
        }
    }
}
