import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A limit on the daemon's descriptors never shows, whether it may open by handle (root) or finds nodes again by name.
    @Suite struct DescriptorLimitTests {
        static let owners: [Identity] =
            (Identity.isRoot ? [.current] : []) + (Machine.usersCanMount ? [Machine.plainUser].compactMap { $0 } : [])

        /// A mount whose daemon has so many descriptors, of a tree with `directories` × `files` files.
        private func mount(_ fixture: MountFixture, limit: Int, directories: Int, files: Int) throws -> (source: String, mountpoint: String)
        {
            let source = try fixture.source("a")
            try Command.shell(
                """
                cd "$1"; for d in $(seq $2); do mkdir d$d; (cd d$d; seq -f "f%.0f" $3 | xargs touch); done
                for d in $(seq 20); do echo $d > d$d/f1; done
                """, source, "\(directories)", "\(files)", as: fixture.owner, within: 1500
            ).orThrow()
            try fixture.grant(source)
            let mountpoint = try fixture.directory("mount")
            try Command.run(
                ["prlimit", "--nofile=\(limit):\(limit)", Programs.grantfs(for: fixture.owner), "mount", "default", mountpoint],
                as: fixture.owner, environment: fixture.environment
            ).orThrow()
            return (source, mountpoint)
        }

        /// Walks all of it, which takes every descriptor from earlier nodes.
        private func walk(_ mountpoint: String, _ fixture: MountFixture) throws -> Output {
            try Command.shell(
                "cd \"$1/a\"; find . -type f -links 1 | wc -l; ls -lR > /dev/null", mountpoint, as: fixture.owner, within: 1500)
        }

        @Test("A tree larger than the limit of descriptors is walked and revoked", arguments: owners)
        func walking(owner: Identity) throws {
            let fixture = try MountFixture(owner: owner)
            let (source, mountpoint) = try mount(fixture, limit: 256, directories: 300, files: 10)
            let walked = try walk(mountpoint, fixture)
            #expect(walked.status == 0 && walked.errors.isEmpty && walked.trimmed == "3000", "\(walked)")
            let read = try Command.shell("cd \"$1/a\"; cat d?/f1 d??/f1 | wc -l; cat d*/f* | wc -l", mountpoint, as: owner)
            #expect(read.lines == ["20", "20"], "\(read)")

            // Held files that lose their names, a name that changes here, and one that changes on
            // the host.
            let holder = try Child(
                [
                    "bash", "-c",
                    "cd \"$1/d5\"; exec 3< ../d6/f1; echo ready; read go; stat -c %h .; cat <&3; stat -L -c %h /proc/self/fd/3",
                    "bash", mountpoint + "/a",
                ], identity: owner)
            try holder.expect("ready")
            try Command.shell(
                "cd \"$1\"; rm d5/*; rmdir d5; rm d6/f1; mv d7 moved; mv d8/f1 d9/one",
                mountpoint + "/a", as: owner
            ).orThrow()
            #expect(try walk(mountpoint, fixture).trimmed == "2989")
            holder.send("go")
            #expect(holder.line() == "0")
            #expect(holder.line() == "6")
            #expect(holder.line() == "0")
            let moved = try Command.shell("cd \"$1\"; cat moved/f1 d9/one; test ! -e d8/f1", mountpoint + "/a", as: owner)
            #expect(moved.text == "7\n8\n", "\(moved)")
            try Command.run(["mv", source + "/d12", source + "/elsewhere"]).orThrow()
            try fixture.wait(until: "what the host renamed is at its new place") {
                let output = try Command.shell("cd \"$1\"; cat elsewhere/f1; test ! -e d12", mountpoint + "/a", as: owner)
                return output.status == 0 && output.text == "12\n"
            }

            #expect(try fixture.revoke("a")[0].isConfirmed)
            #expect(try Probe.call("stat", mountpoint + "/a/d1/f1", as: owner) == "EACCES")
        }

        @Test(
            "Files can be opened while nodes hold most of the descriptors",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func opening() throws {
            let fixture = try MountFixture()
            let (_, mountpoint) = try mount(fixture, limit: 512, directories: 30, files: 10)
            #expect(try walk(mountpoint, fixture).trimmed == "300")
            // With the nodes' half, and what the daemon has of its own, more than there are.
            let script = """
                import os, sys
                os.chdir(sys.argv[1])
                held = [os.open(f'd{d}/f{f}', os.O_RDONLY) for d in range(1, 31) for f in range(1, 11)]
                listed = [os.open(f'd{d}', os.O_RDONLY) for d in range(1, 31)]
                print(len(held), sum(len(os.read(fd, 10)) > 0 for fd in held), sum(len(os.listdir(fd)) for fd in listed))
                """
            let opened = try Command.run(["python3", "-c", script, mountpoint + "/a"])
            #expect(opened.text == "300 20 300\n", "\(opened)")
        }

        @Test(
            "A tree of 300,000 files is walked at the limit of descriptors and revoked",
            .enabled(if: ProcessInfo.processInfo.environment["GRANTFS_LONG_TESTS"] != nil, "GRANTFS_LONG_TESTS is not set"),
            arguments: owners)
        func walkingFar(owner: Identity) throws {
            let fixture = try MountFixture(owner: owner)
            let (_, mountpoint) = try mount(fixture, limit: 1024, directories: 3000, files: 100)
            let daemon = try fixture.daemon(at: mountpoint)
            let before = Processes.residentKilobytes(daemon)
            let walked = try walk(mountpoint, fixture)
            #expect(walked.status == 0 && walked.errors.isEmpty && walked.trimmed == "300000", "\(walked)")
            let full = Processes.residentKilobytes(daemon)
            let inodes = try fixture.status().mounts[0].inodes
            #expect((full - before) * 1024 <= 300 * inodes + 16 << 20, "bytes a node")
            #expect(try fixture.revoke("a")[0].isConfirmed)
            #expect(try Probe.call("stat", mountpoint + "/a/d1/f1", as: owner) == "EACCES")
            if Identity.isRoot {
                try KernelCaches.drop()
                try fixture.wait(until: "the kernel has forgotten", within: 20) { try fixture.status().mounts[0].inodes < 1000 }
                pause(milliseconds: 2500)
                let after = Processes.residentKilobytes(daemon)
                print("\(owner): \(before) KiB, \(full) KiB with \(inodes) inodes, \(after) KiB afterwards")
                #expect(after - before <= 12 << 10)
            }
        }
    }
}
