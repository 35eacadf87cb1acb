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
            try Command.run(["cp", Programs.daemons[0], path]).orThrow()
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

        @Test(
            "grantfs passes the internal commands of earlier versions on to grantfsd",
            arguments: ["keeper", "look", "recover", "take-over"])
        func internalCommands(name: String) throws {
            _ = try install(at: "bin")
            let output = try Command.run([directory + "/grantfs", name, "--help"])
            #expect(output.status == 0 && output.text.hasPrefix("Usage: grantfsd \(name)"), "\(output)")
        }
    }
}
