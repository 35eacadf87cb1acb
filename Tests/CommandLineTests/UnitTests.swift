import Foundation
import TestSupport
import Testing

/// The units for systemd, looked at by systemd's own tools where they are installed.
@Suite struct UnitTests {
    private static let units = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("mount-helpers/systemd").path

    private static let isThere = FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-analyze")

    /// Runs `body` with a directory of its own.
    private func inDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
        // Outside the directory of temporary files: units of other packages have sockets in it with
        // a limited path length.
        let directory = "/tmp/grantfs-units-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        return try body(directory)
    }

    private func run(_ tool: String, _ words: [String], in directory: String) throws -> (status: Int32, text: String) {
        let environment = ["XDG_RUNTIME_DIR=\(directory)", "PATH=/usr/bin:/bin", "HOME=\(directory)"]
        let output = try Command.run(["env", "-i"] + environment + ["/usr/bin/" + tool] + words)
        return (output.status, output.text + output.errors)
    }

    private func analyze(_ kind: String, _ words: [String]) throws -> (status: Int32, text: String) {
        try inDirectory { try analyze(kind, words, in: $0) }
    }

    private func analyze(_ kind: String, _ words: [String], in directory: String) throws -> (status: Int32, text: String) {
        // An existing program, under the name in the unit.
        try FileManager.default.createSymbolicLink(atPath: directory + "/grantfs", withDestinationPath: "/bin/true")
        for name in ["grantfs@.service", "grantfs-apply.service"] {
            let unit = try String(contentsOfFile: "\(Self.units)/\(kind)/\(name)", encoding: .utf8)
            try Data(unit.replacingOccurrences(of: "@BINDIR@", with: directory).utf8).write(
                to: URL(fileURLWithPath: directory + "/" + name))
        }
        return try run("systemd-analyze", words + [directory + "/grantfs@.service"], in: directory)
    }

    @Test("`systemd-analyze` accepts the mount units", .enabled(if: isThere, "systemd-analyze is not installed"))
    func systemdFindsNothingWrongWithTheUnits() throws {
        for (kind, words) in [("system", ["verify", "--man=no"]), ("user", ["--user", "verify", "--man=no"])] {
            let result = try analyze(kind, words)
            #expect(result.status == 0 && result.text.isEmpty, "\(kind): \(result.text)")
        }
    }

    /// Runs `systemd-analyze` with units of the system, and these words before their files.
    private func analyze(system names: [String], _ words: [String]) throws -> (status: Int32, text: String) {
        try inDirectory { directory in
            try FileManager.default.createSymbolicLink(atPath: directory + "/grantfs", withDestinationPath: "/bin/true")
            for name in names {
                let unit = try String(contentsOfFile: "\(Self.units)/system/\(name)", encoding: .utf8)
                try Data(unit.replacingOccurrences(of: "@BINDIR@", with: directory).utf8).write(
                    to: URL(fileURLWithPath: directory + "/" + name))
            }
            return try run("systemd-analyze", words + names.map { directory + "/" + $0 }, in: directory)
        }
    }

    @Test("`systemd-analyze` accepts the units of the system service", .enabled(if: isThere, "systemd-analyze is not installed"))
    func systemdFindsNothingWrongWithTheServiceOfRootsStore() throws {
        let result = try analyze(system: ["grantfs-system@.service", "grantfs-system.socket"], ["verify", "--man=no"])
        #expect(result.status == 0 && result.text.isEmpty, "\(result.text)")
    }

    @Test("`systemd-analyze` accepts the units of the volume plugin", .enabled(if: isThere, "systemd-analyze is not installed"))
    func systemdFindsNothingWrongWithTheVolumePlugin() throws {
        let result = try analyze(system: ["grantfs-volumes.service", "grantfs-volumes.socket"], ["verify", "--man=no"])
        #expect(result.status == 0 && result.text.isEmpty, "\(result.text)")
    }

    /// Threshold in tenths. The rest is open because a mount that all users see needs it.
    @Test("The exposure score of the system unit stays below the threshold", .enabled(if: isThere, "systemd-analyze is not installed"))
    func theDaemonHasLittleThatItDoesNotNeed() throws {
        let result = try analyze("system", ["security", "--offline=yes", "--threshold=50"])
        #expect(result.status == 0, "\(result.text.split(separator: "\n").last ?? "")")
    }

    @Test("The exposure score of the volume plugin stays below the threshold", .enabled(if: isThere, "systemd-analyze is not installed"))
    func theVolumePluginHasLittleThatItDoesNotNeed() throws {
        let result = try analyze(system: ["grantfs-volumes.service"], ["security", "--offline=yes", "--threshold=51"])
        #expect(result.status == 0, "\(result.text.split(separator: "\n").last ?? "")")
    }

    @Test(
        "The sysusers and tmpfiles files create the user and its directories",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-sysusers"), "systemd-sysusers is not installed"),
        .enabled(if: geteuid() == 0, "needs root"))
    func systemdMakesTheUserAndTheDirectories() throws {
        try inDirectory { root in
            try FileManager.default.createDirectory(atPath: root + "/etc", withIntermediateDirectories: true)
            let made = try run("systemd-sysusers", ["--root=\(root)", Self.units + "/grantfs.sysusers"], in: root)
            #expect(made.status == 0, "\(made.text)")
            let user = try String(contentsOfFile: root + "/etc/passwd", encoding: .utf8).split(separator: ":").map(String.init)
            #expect(user.first == "grantfs" && user.last == "/usr/sbin/nologin\n", "\(user)")
            let directories = try run("systemd-tmpfiles", ["--root=\(root)", "--create", Self.units + "/grantfs.tmpfiles"], in: root)
            #expect(directories.status == 0 && directories.text.isEmpty, "\(directories.text)")
            let modes = try ["/run/grantfs", "/var/lib/grantfs"].map {
                try FileManager.default.attributesOfItem(atPath: root + $0)[.posixPermissions] as? Int
            }
            #expect(modes == [0o755, 0o700])
        }
    }

    /// With a mount namespace of the service's own, no other process would see its mount.
    @Test(
        "No mount unit has a mount namespace of its own",
        arguments: ["system/grantfs@.service", "user/grantfs@.service", "system/grantfs-volumes.service"])
    func noUnitHasAMountNamespaceOfItsOwn(_ name: String) throws {
        let unit = try String(contentsOfFile: "\(Self.units)/\(name)", encoding: .utf8)
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
