import Foundation
import TestSupport
import Testing

extension GrantFleetTests {
    /// A short form of `make conformance FLEET=SCHEDULES`: three members of etcd, three hosts in network namespaces, an administrator for
    /// each grant, and constant readers. The number of faults in this time depends on the machine, so it runs alone, after the other
    /// tests.
    @Suite(.enabled(if: ProcessInfo.processInfo.environment["GRANTFS_ALONE"] != nil, "needs GRANTFS_ALONE")) struct AFleetWithFaults {
        private static func run(_ words: String...) throws -> Output? {
            let root = URL(fileURLWithPath: #filePath).appendingPathComponent("../../..").standardized.path
            let histories = try MountFixture()
            let output = try Command.run(
                [root + "/.ci/fleet-faults", "--keep", histories.base] + words, environment: ["GRANTFS_BINARY": Programs.grantfs],
                within: 300)
            if output.status != 77 { return output }
            // Where programs are required, as in CI, it has to run.
            if ProcessInfo.processInfo.environment["GRANTFS_REQUIRE_PROGRAMS"] == "1" { throw TestFailure("\(output)") }
            print("skipped: \(output.errors)")
            return nil
        }

        @Test("The fault test of a fleet passes two schedules of random faults")
        func holds() throws {
            guard let output = try Self.run("--schedules", "2", "--time", "10", "--seed", "1") else { return }
            #expect(output.status == 0, "\(output)")
            #expect(output.text.contains("2 schedules, 0 failed"), "\(output)")
        }

        @Test(
            "The fault test detects a daemon without a fence and an early confirmation",
            arguments: ["no-fence", "early-watermark"])
        func planted(fault: String) throws {
            guard let output = try Self.run("--schedules", "4", "--time", "20", "--seed", "1", "--plant", fault) else { return }
            #expect(output.status == 1 && output.text.contains(" could be read "), "\(output)")
        }

        @Test("The demonstration script shows a cut link, a revocation and the fence")
        func demonstration() throws {
            let script = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../docs/guides/fleet-demo").standardized.path
            let programs = URL(fileURLWithPath: Programs.grantfs).deletingLastPathComponent().path
            let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin"
            let output = try Command.run([script], environment: ["PATH": programs + ":" + path], within: 150)
            if output.status == 77, ProcessInfo.processInfo.environment["GRANTFS_REQUIRE_PROGRAMS"] != "1" {
                return print("skipped: \(output.errors)")
            }
            #expect(output.status == 0, "\(output)")
            let parts = output.text.components(separatedBy: "\n== ")
            let part = { (title: String) in parts.first { $0.hasPrefix(title) } ?? "" }
            #expect(
                part("h3 is cut off").contains("(exit status 3)") && part("h3 is cut off").contains("h1: Permission denied"), "\(output)")
            #expect(part("the same once more").contains("their leases are gone: h3"), "\(output)")
            #expect(
                part("the same once more").contains("h3: Permission denied") && part("the same once more").contains("reads nothing either"),
                "\(output)")
            #expect(part("h3 is back").contains("h3: what is shared"), "\(output)")
        }
    }
}
