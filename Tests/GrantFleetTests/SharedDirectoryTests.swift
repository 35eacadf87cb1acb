import Foundation
import Glibc
import TestSupport
import Testing

extension GrantFleetTests {
    /// Directories named by their filesystem: a real one on a loop device, and an overlay with the
    /// name of an export, because this kernel has no NFS server.
    @Suite(.enabled(if: Identity.isRoot && Volume.kinds.contains(.ext4), Comment(rawValue: Machine.needs("root and mkfs.ext4"))))
    struct ADirectoryOfASharedFilesystem {
        private func uuid(of volume: String, _ fleet: FleetFixture) throws -> String {
            "UUID=" + (try Command.run(["blkid", "-o", "value", "-s", "UUID", "\(fleet.files.base)/\(volume).image"]).orThrow().trimmed)
        }

        private func tree(in volume: Volume) throws {
            try Command.shell("mkdir -p \"$1/projects/x\" && printf hello >\"$1/projects/x/file\"", volume.place).orThrow()
        }

        private func problem(_ fleet: FleetFixture, _ host: String = "h1") throws -> String {
            try fleet.host(host)?.problems.values.first ?? ""
        }

        @Test("A shared directory is found in any mount of its filesystem on a host")
        func found() throws {
            let fleet = try FleetFixture(hosts: ["h1", "h2"])
            let volume = try Volume(.ext4, at: "vol", in: fleet.files)
            try tree(in: volume)
            let (one, two) = (try fleet.mount("h1"), try fleet.mount("h2"))
            // A host whose agent comes later has it somewhere else.
            fleet.killAgent("h2")
            let name = try uuid(of: "vol", fleet)
            let granted = try fleet.administer(
                "grant", "--fleet", "--filesystem", name, "/projects/x", "--view", "v", "--hosts", "role=build", "--timeout", "1")
            #expect([0, 3].contains(granted.status), "\(granted)")
            try fleet.awaitReading(one + "/x/file", 0)
            let listed = try fleet.administer("list", "--fleet").orThrow().text
            #expect(listed.contains("/projects/x of \(name)"), "\(listed)")
            try fleet.on("h1", "release", "x", "--view", "v").orThrow()
            try volume.unmount().orThrow()
            try fleet.files.wait(until: "it is not shown without its filesystem") { FleetFixture.reading(one + "/x/file") == ENOENT }
            // Elsewhere, and the directory above it by itself. Of several mounts, that with the
            // shortest path is used.
            let elsewhere = try fleet.files.directory("part")
            let whole = try fleet.files.directory("whole-of-it")
            try fleet.files.mountOther(["mount", "-o", "loop", fleet.files.base + "/vol.image"], at: whole)
            try fleet.files.mountOther(["mount", "--bind", whole + "/projects"], at: elsewhere)
            try fleet.startAgent("h2")
            try fleet.awaitReading(two + "/x/file", 0)
            #expect(try fleet.on("h2", "list", "--view", "v").orThrow().text.contains(elsewhere + "/x"))
            try fleet.awaitReading(one + "/x/file", 0)
            let revoked = try fleet.administer("revoke", "--fleet", "x", "--view", "v", "--timeout", "20")
            #expect(revoked.status == 0, "\(revoked)")
            #expect(FleetFixture.reading(two + "/x/file") == EACCES && FleetFixture.reading(one + "/x/file") == EACCES)
        }

        @Test("A shared directory replaced by another is refused until it returns")
        func replaced() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let volume = try Volume(.ext4, at: "vol", in: fleet.files)
            try tree(in: volume)
            let mount = try fleet.mount("h1")
            fleet.killAgent("h1")
            let name = try uuid(of: "vol", fleet)
            let granted = try fleet.administer("grant", "--fleet", "--filesystem", name, "/projects/x", "--view", "v", "--timeout", "1")
            #expect(granted.status == 3 && !granted.errors.contains("each takes"), "\(granted)")
            try Command.shell("cd \"$1/projects\"; mv x away; mkdir x; printf other >x/file", volume.place).orThrow()
            try fleet.startAgent("h1")
            try fleet.files.wait(until: "it is said") { try problem(fleet).contains("another directory is there now") }
            #expect(FleetFixture.reading(mount + "/x/file") == ENOENT)
            try Command.shell("cd \"$1/projects\"; rm -r x; mv away x", volume.place).orThrow()
            try fleet.awaitReading(mount + "/x/file", 0)
            #expect(try String(contentsOfFile: mount + "/x/file", encoding: .utf8) == "hello")
        }

        @Test("A shared directory waits until its filesystem is mounted")
        func sources() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let mount = try fleet.mount("h1")
            let granted = try fleet.administer("grant", "--fleet", "--filesystem", "nas:/export", "/projects/x", "--view", "v")
            #expect(granted.status == 3 && granted.errors.contains("nas:/export is not mounted here"), "\(granted)")
            try fleet.files.wait(until: "it is said") { try problem(fleet).contains("nas:/export is not mounted here") }
            func overlay(_ number: Int) throws -> String {
                let base = try fleet.files.directory("overlay\(number)")
                try Command.shell("cd \"$1\"; mkdir -p lower/projects/x upper work on; printf \(number) >lower/projects/x/file", base)
                    .orThrow()
                let options = "lowerdir=\(base)/lower,upperdir=\(base)/upper,workdir=\(base)/work"
                try fleet.files.mountOther(["mount", "-t", "overlay", "-o", options, "nas:/export"], at: base + "/on")
                return base + "/on"
            }
            let one = try overlay(1)
            try fleet.awaitReading(mount + "/x/file", 0)
            #expect(try fleet.on("h1", "list", "--view", "v").orThrow().text.contains(one + "/projects/x"))
            _ = try overlay(2)
            let again = try fleet.administer("grant", "--fleet", "--filesystem", "nas:/export", "/projects/x", "--view", "v", "--name", "y")
            #expect(again.status == 1 && again.errors.contains("in several places"), "\(again)")
            #expect(try String(contentsOfFile: mount + "/x/file", encoding: .utf8) == "1", "a host that has found it keeps it")
        }

        @Test("A declared shared directory is granted, and an invalid filesystem is refused")
        func declared() throws {
            let fleet = try FleetFixture(hosts: ["h1"])
            let volume = try Volume(.ext4, at: "vol", in: fleet.files)
            try tree(in: volume)
            let mount = try fleet.mount("h1")
            let (name, file) = (try uuid(of: "vol", fleet), fleet.files.base + "/fleet.toml")
            func apply(_ filesystem: String, _ words: String...) throws -> Output {
                try """
                [[grant]]
                view = "v"
                path = "/projects/x"
                filesystem = "\(filesystem)"
                """.write(toFile: file, atomically: false, encoding: .utf8)
                return try fleet.administer("fleet", "apply", file, "--yes")
            }
            #expect(try apply("/dev/sda1").errors.contains("“filesystem” names none"))
            let made = try apply(name)
            #expect(made.status == 0, "\(made)")
            try fleet.awaitReading(mount + "/x/file", 0)
            let kept = try apply(name.uppercased())
            #expect(kept.status == 0 && !kept.text.contains("+"), "\(kept)")
            for (words, said) in [
                (["--fleet", "--filesystem", "/dev/sda1"], "a device has another name on each host"),
                (["--fleet", "--filesystem", "UUID=xyz"], "names no filesystem"), (["--filesystem", name], "is for --fleet"),
                (["--fleet", "--filesystem", name], "no such directory"),
            ] {
                let output = try Command.run(
                    [Programs.grantfs, "grant"] + words + ["/nowhere", "--view", "v"],
                    environment: ["GRANTFS_STORE": fleet.store("administrator")])
                #expect([1, 2].contains(output.status) && output.errors.lowercased().contains(said.lowercased()), "\(words): \(output)")
            }
        }
    }
}
