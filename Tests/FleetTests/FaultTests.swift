import Foundation
import TestSupport
import Testing

extension FleetTests {
    /// A short form of what `make conformance FLEET=SCHEDULES` does for long: three members of etcd, three hosts in network namespaces, an administrator for each grant, and programs that read without pause.
    @Suite struct AFleetWithFaults {
        private static func run(_ words: String...) throws -> Output? {
            let root = URL(fileURLWithPath: #filePath).appendingPathComponent("../../..").standardized.path
            let histories = try MountFixture()
            let output = try Command.run(
                [root + "/.ci/fleet-faults", "--keep", histories.base] + words, environment: ["GRANTFS_BINARY": Programs.grantfs],
                within: 170)
            if output.status != 77 { return output }
            // Where programs are required, as in CI, it has to run.
            if ProcessInfo.processInfo.environment["GRANTFS_REQUIRE_PROGRAMS"] == "1" { throw TestFailure("\(output)") }
            print("skipped: \(output.errors)")
            return nil
        }

        @Test("shows nothing after a confirmation or a lease, brings nothing back, and loses nothing, whatever dies, stops, or is cut off")
        func holds() throws {
            guard let output = try Self.run("--schedules", "2", "--time", "10", "--seed", "1") else { return }
            #expect(output.status == 0, "\(output)")
            #expect(output.text.contains("2 schedules, 0 failed"), "\(output)")
        }

        @Test(
            "is not passed by a daemon without a fence, nor by an agent that says too early that mounts have confirmed",
            arguments: [("no-fence", "it was withdrawn a lease ago"), ("early-watermark", "the host was called confirmed")])
        func planted(fault: String, said: String) throws {
            guard let output = try Self.run("--schedules", "4", "--time", "12", "--seed", "1", "--plant", fault) else { return }
            #expect(output.status == 1 && output.text.contains(said), "\(output)")
        }
    }
}
