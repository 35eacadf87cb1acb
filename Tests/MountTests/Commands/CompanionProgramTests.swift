import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// How `grantfs` becomes the program of a command.
    @Suite struct CompanionProgramTests {
        private let fixture: MountFixture
        private let directory: String

        init() throws {
            fixture = try MountFixture()
            directory = try fixture.directory("programs/bin")
            try Command.run(["cp", Programs.grantfs, directory + "/grantfs"]).orThrow()
        }

        private func install(_ name: String, at place: String) throws -> String {
            let source = try #require(Programs.companions.first { ($0 as NSString).lastPathComponent == name })
            let path = try fixture.directory("programs/" + place) + "/" + name
            try Command.run(["cp", source, path]).orThrow()
            return path
        }

        private func run(_ words: String...) throws -> Output {
            try Command.run([directory + "/grantfs"] + words, environment: fixture.environment)
        }

        /// A command of each program, and the package that has it.
        static let commands: [(program: String, package: String, words: [String])] = [
            ("grantfs-sandbox", "grantfs", ["diff"]), ("grantfs-portal", "grantfs-portal", ["portal"]),
            ("grantfs-fleet", "grantfs-fleet", ["fleet", "hosts"]), ("grantfs-fleet", "grantfs-fleet", ["list", "--fleet"]),
            ("grantfs-volumes", "grantfs-volumes", ["volume-plugin"]),
        ]

        @Test("Without its program a command fails and names the package", arguments: commands)
        func missing(program: String, package: String, words: [String]) throws {
            let output = try Command.run([directory + "/grantfs"] + words, environment: fixture.environment)
            #expect(output.status == 1 && output.errors.contains("\(program) is missing"), "\(output)")
            #expect(output.errors.contains("install the package \(package),"), "\(output)")
        }

        @Test("The help of a command needs no program but grantfs", arguments: commands)
        func help(program: String, package: String, words: [String]) throws {
            let output = try Command.run([directory + "/grantfs"] + words + ["--help"], environment: fixture.environment)
            #expect(output.status == 0 && output.text.hasPrefix("Usage: grantfs \(words[0])"), "\(output)")
        }

        @Test("doctor reports a missing sandbox program, and none of another package")
        func doctor() throws {
            _ = try install("grantfsd", at: "bin")
            let output = try run("doctor")
            #expect(output.text.contains("PROBLEM  program: grantfs-sandbox is missing"), "\(output)")
            for name in ["grantfs-portal", "grantfs-fleet", "grantfs-volumes"] {
                #expect(!output.text.contains(name), "\(output)")
            }
        }

        @Test("doctor says that a host of a fleet lacks the fleet's program")
        func doctorOfAHost() throws {
            _ = try install("grantfsd", at: "bin")
            try FileManager.default.createDirectory(atPath: fixture.store + "/fleet", withIntermediateDirectories: true)
            try "{}".write(toFile: fixture.store + "/fleet/host.json", atomically: true, encoding: .utf8)
            let output = try run("doctor")
            #expect(output.status == 1 && output.text.contains("PROBLEM  fleet: grantfs-fleet is missing"), "\(output)")
            _ = try install("grantfs-fleet", at: "libexec/grantfs")
            #expect(try run("doctor").text.contains("PROBLEM  fleet: \(fixture.store)/fleet/host.json is not used"))
        }

        @Test("A program is beside grantfs, or else in ../libexec/grantfs, and refuses the commands of others")
        func places() throws {
            for place in ["libexec/grantfs", "bin"] {
                let program = try install("grantfs-sandbox", at: place)
                #expect(try run("diff", "--list").status == 0)
                let output = try Command.run([program, "list"], environment: fixture.environment)
                #expect(output.status == 2 && output.errors.contains("grantfs-sandbox does not run list"), "\(output)")
                let version = try run("--version").text.replacingOccurrences(of: "grantfs", with: "grantfs-sandbox")
                #expect(try Command.run([program, "--version"]).text == version)
                unlink(program)
            }
        }

        @Test("A command of another program keeps its process, its name, its words, its descriptors and its signals")
        func process() throws {
            for name in ["grantfsd", "grantfs-sandbox"] { _ = try install(name, at: "libexec/grantfs") }
            // Ignored signals stay ignored, as by nohup(1), and bash keeps the descriptor 7.
            let script = "trap '' HUP; exec 7<<<inherited; exec \"$@\""
            let child = try Child(
                ["bash", "-c", script, "bash", directory + "/grantfs", "mcp", "--ask", "never"], environment: fixture.environment)
            // Shortly after the start the name is the descriptor's number.
            try fixture.wait(until: "it is grantfs-sandbox, and called grantfs") {
                let program = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(child.pid)/exe")
                return program?.hasSuffix("/libexec/grantfs/grantfs-sandbox") == true && Processes.name(of: child.pid) == "grantfs"
            }
            let words = try String(contentsOfFile: "/proc/\(child.pid)/cmdline", encoding: .utf8).split(separator: "\0")
            #expect(words == [Substring(directory + "/grantfs"), "mcp", "--ask", "never"])
            #expect(access("/proc/\(child.pid)/fd/7", F_OK) == 0)
            kill(child.pid, SIGHUP)
            let ping = #"{"jsonrpc":"2.0","id":1,"method":"ping"}"#
            child.send(ping)
            #expect(child.line()?.contains("\"result\"") == true, "SIGHUP is ignored")
            kill(child.pid, SIGTERM)
            #expect(child.wait() != 0)
        }
    }
}
