import Foundation
import Testing

/// The units for systemd, looked at by systemd's own tools where they are installed.
@Suite struct UnitTests {
    private static let units = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("mount-helpers/systemd").path

    private static let isThere = FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-analyze")

    private func analyze(_ kind: String, _ words: [String]) throws -> (status: Int32, text: String) {
        let directory = NSTemporaryDirectory() + "/grantfs-units-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        // A program that is there, under the name that the unit has.
        try FileManager.default.createSymbolicLink(atPath: directory + "/grantfs", withDestinationPath: "/bin/true")
        let unit = try String(contentsOfFile: "\(Self.units)/\(kind)/grantfs@.service", encoding: .utf8)
        try Data(unit.replacingOccurrences(of: "@BINDIR@", with: directory).utf8).write(
            to: URL(fileURLWithPath: directory + "/grantfs@.service"))
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/systemd-analyze")
        process.arguments = words + [directory + "/grantfs@.service"]
        process.environment = ["XDG_RUNTIME_DIR": directory, "PATH": "/usr/bin:/bin", "HOME": directory]
        let output = Pipe()
        process.standardOutput = output
        process.standardError = output
        process.standardInput = FileHandle.nullDevice
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationStatus, text)
    }

    @Test(.enabled(if: isThere, "systemd-analyze is not installed")) func systemdFindsNothingWrongWithTheUnits() throws {
        for (kind, words) in [("system", ["verify", "--man=no"]), ("user", ["--user", "verify", "--man=no"])] {
            let result = try analyze(kind, words)
            #expect(result.status == 0 && result.text.isEmpty, "\(kind): \(result.text)")
        }
    }

    /// Threshold in tenths; what is left open is what a mount that others are to see, for all users, needs.
    @Test(.enabled(if: isThere, "systemd-analyze is not installed")) func theDaemonHasLittleThatItDoesNotNeed() throws {
        let result = try analyze("system", ["security", "--offline=yes", "--threshold=50"])
        #expect(result.status == 0, "\(result.text.split(separator: "\n").last ?? "")")
    }

    /// With a mount namespace of the service's own, nobody else would see its mount.
    @Test(arguments: ["system", "user"]) func noUnitHasAMountNamespaceOfItsOwn(_ kind: String) throws {
        let unit = try String(contentsOfFile: "\(Self.units)/\(kind)/grantfs@.service", encoding: .utf8)
        let settings = unit.split(separator: "\n").filter { !$0.hasPrefix("#") }.map { String($0.prefix { $0 != "=" }) }
        let unsharing = [
            "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectKernelTunables",
            "ProtectKernelModules",
            "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset", "PrivateIPC", "ReadOnlyPaths", "ReadWritePaths",
            "InaccessiblePaths", "TemporaryFileSystem", "BindPaths", "BindReadOnlyPaths", "RootDirectory", "RootImage", "DynamicUser",
            "MountFlags",
        ]
        #expect(settings.contains("ExecStart"))
        #expect(settings.filter { unsharing.contains($0) } == [])
    }
}
