import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A grant whose filesystem hangs, and another that must never notice.
    @Suite(.serialized) struct AHangingSource {
        struct Mounted {
            let fixture: MountFixture
            let source: HangingSource
            let mountpoint: String
            var hung: String { mountpoint + "/hung" }
            var good: String { mountpoint + "/good" }

            init(cache: String = "shared", files: [(name: String, size: Int)] = []) throws {
                fixture = try MountFixture()
                source = try HangingSource("hung", in: fixture)
                for file in files { try source.file(file.name, size: file.size) }
                let plain = try fixture.source("good")
                try Command.shell("cd \"$1\"; for i in $(seq 40); do echo \"text $i\" > \"f$i\"; done", plain).orThrow()
                try fixture.grant(source.directory)
                try fixture.grant(plain)
                mountpoint = try fixture.mount(options: "cache=\(cache)")
            }

            var inFlight: Int { get throws { try status("hung").inFlight } }

            func status(_ name: String) throws -> StatusDocument.Scope {
                guard let grant = try fixture.status().mounts.first?.grants.first(where: { $0.name == name }) else {
                    throw TestFailure("status does not know the grant \(name)")
                }
                return grant
            }

            /// Everything that is done every day, through the other grant and at the root, each within a second.
            func expectOthersGoOn(_ when: String) throws {
                let number = Int.random(in: 1...40)
                let daily: [(what: String, command: [String])] = [
                    ("read", ["cat", "\(good)/f\(number)"]), ("stat", ["stat", "\(good)/f\(number)"]), ("list", ["ls", "-l", good]),
                    ("write", ["bash", "-euc", "echo new > \"$1/new\"; echo more >> \"$1/new\"; rm \"$1/new\"", "bash", good]),
                    ("list the root", ["ls", mountpoint]), ("stat the root", ["stat", mountpoint]),
                ]
                for (what, command) in daily {
                    // The best of several, because the machine has other work. A call that waits
                    // for the source is slow each time.
                    var best = Double.infinity
                    for _ in 0..<12 where best >= 1 {
                        let output = try Command.run(command, within: 60)
                        #expect(output.status == 0, "\(when): \(what): \(output)")
                        best = min(best, output.seconds)
                    }
                    #expect(best < 1, "\(when): \(what) took \(best) s")
                }
            }

            func revokeHung() throws -> RevocationDocument { try timedRevocation().document }

            /// Revokes with the command, tries fresh operations meanwhile, which must be refused while the source hangs, and gives what it said, and
            /// after how many milliseconds one was refused.
            func timedRevocation() throws -> (document: RevocationDocument, refused: Double) {
                let start = Machine.milliseconds
                let command = try Child(
                    [Programs.grantfs, "revoke", "hung", "--json", "--timeout", "60"], environment: fixture.environment,
                    separateErrors: true)
                try fixture.wait(until: "new operations are refused") {
                    try Probe.call("stat", hung + "/never-seen-\(Int.random(in: 0..<1 << 40))") == "EACCES"
                }
                let refused = Machine.milliseconds - start
                let output = try finish(command, within: 90)
                let ended = Machine.milliseconds - start
                print("refused after \(Int(refused)) ms, the command after \(Int(ended)) ms: \(output.mounts)")
                return (output, refused)
            }

            private func finish(_ command: Child, within seconds: Double) throws -> RevocationDocument {
                guard let collected = command.collected(within: seconds), let status = command.wait(within: 30) else {
                    throw TestFailure("the command hangs")
                }
                let output = Output(
                    command: ["revoke"], status: status, bytes: collected.output, errors: collected.errors, seconds: 0)
                guard status == 0 else { throw TestFailure("\(output)") }
                let documents: [RevocationDocument] = try output.decoded()
                return documents[0]
            }
        }

        /// Calls that can hang below the grant, each in a directory of its own, so that none waits
        /// for the other in the kernel.
        static let operations = [
            "read", "write", "fstat", "fsync", "readdir", "stat", "open", "create", "mkdir", "close",
        ]

        @Test("A revocation frees every caller of a hanging source", arguments: ["shared", "exclusive", "none"])
        func everyOperation(cache: String) throws {
            let fresh: Set<String> = ["create", "mkdir"]
            let mounted = try Mounted(cache: cache, files: Self.operations.map { ("d-\($0)/\(fresh.contains($0) ? "x" : "file")", 8192) })
            defer { mounted.source.end() }
            try mounted.source.file("d-stat/locked")
            let callers = try Self.operations.map { operation in
                let directory = "\(mounted.hung)/d-\(operation)"
                // Known, so that what hangs is the operation itself.
                try Command.run(["stat", directory]).orThrow()
                return try Probe.role(["late", operation, operation == "readdir" ? directory : directory + "/file"])
            }
            // What hangs cannot be killed, so it goes on before the callers are ended.
            defer { withExtendedLifetime(callers) { mounted.source.end() } }
            for caller in callers { try caller.expect("ready") }
            // A lock keeps a file of the source open, and ending it closes that.
            let holder = try Probe.role(["lock", "\(mounted.hung)/d-stat/locked", "fcntl", "try"])
            try holder.expect("OK")
            let daemon = try mounted.fixture.daemon(at: mounted.mountpoint)
            // What the kernel has of the attributes grows old, so that fstat asks.
            pause(milliseconds: 1100)
            try mounted.source.hang()
            for caller in callers { caller.send("now") }
            // With write-back, write and fstat are the kernel's own affair, and close and fsync may wait for the write.
            let least = cache == "exclusive" ? 5 : Self.operations.count
            try mounted.fixture.wait(until: "the callers are stuck") { try mounted.inFlight >= least }
            try mounted.expectOthersGoOn("hanging")

            let revoked = try mounted.revokeHung()
            #expect(revoked.isConfirmed)
            #expect(revoked.mounts[0].pending >= 1)
            for (operation, caller) in zip(Self.operations, callers) {
                let result = caller.line()
                if operation == "close" {
                    #expect(result == "OK", "close never fails")
                } else if operation == "read" {
                    #expect(Machine.refusalsOfReads.contains(result ?? "nothing"), "read gives \(result ?? "nothing")")
                } else if cache != "exclusive" || !["write", "fstat", "fsync"].contains(operation) {
                    #expect(result == "EACCES", "\(operation) gives \(result ?? "nothing")")
                } else {
                    #expect(result != nil, "\(operation) hangs")
                }
            }
            try mounted.expectOthersGoOn("revoked, still hanging")
            #expect(try mounted.status("hung").state == "revoked")

            mounted.source.goOn()
            try mounted.expectOthersGoOn("after it went on")
            try mounted.fixture.wait(until: "what was stuck is gone") { try mounted.inFlight == 0 }
            for operation in Self.operations { try expectCall("stat", "\(mounted.hung)/d-\(operation)/file", gives: "EACCES") }
            #expect(try mounted.fixture.daemon(at: mounted.mountpoint) == daemon)
            try mounted.fixture.restore("hung")
            try expectCall("stat", mounted.hung + "/d-stat/file", gives: "OK")
        }

        @Test("Two hundred stuck readers of a hanging source do not starve another grant")
        func manyReaders() throws {
            let readers = 200
            let mounted = try Mounted(files: [("large", readers << 20)])
            defer { mounted.source.end() }
            let caller = try Probe.role(["late", "read", mounted.hung + "/large", "\(readers)"])
            try caller.expect("ready")
            try mounted.source.hang("read")
            caller.send("now")
            try mounted.fixture.wait(until: "the readers are stuck") { try mounted.inFlight >= readers }
            // Nothing of it is kept, so that the kernel reads ahead.
            try Command.shell(
                "head -c 64M /dev/zero > \"$1/good/zeros\"; dd if=\"$1/good/zeros\" iflag=nocache count=0 2> /dev/null", mounted.mountpoint
            ).orThrow()
            let read = try Command.run(["cat", mounted.good + "/zeros"])
            #expect(read.status == 0 && read.bytes.count == 64 << 20)
            try mounted.expectOthersGoOn("200 readers hang")
            let revoked = try mounted.revokeHung()
            #expect(revoked.isConfirmed)
            #expect(revoked.mounts[0].pending >= readers)
            for _ in 0..<readers { try caller.expect(Machine.refusalsOfReads) }
            try mounted.expectOthersGoOn("200 readers were freed")
            mounted.source.goOn()
            try mounted.fixture.wait(until: "what was stuck is gone") { try mounted.inFlight == 0 }
        }

        @Test(
            "Unwritten data of a hanging source blocks no writes to another grant",
            .enabled(if: Identity.isRoot && Machine.kernel >= (6, 2), "needs root, and a kernel that lets it lift a mount's own bound"),
            arguments: ["shared", "exclusive"])
        func storedElsewhere(cache: String) throws {
            // More than the hundredth that a FUSE filesystem has for itself, on machines of up to fifty gigabytes.
            let mounted = try Mounted(cache: cache, files: [("mapped", 128 << 20)])
            defer { mounted.source.end() }
            try Data(count: 256 * 4096).write(to: URL(fileURLWithPath: mounted.fixture.base + "/source/good/mapped"))
            try mounted.source.hang("write")
            let writer = try Probe.role(["dirty", mounted.hung + "/mapped"])
            try writer.expect("ready")
            let other = try Probe.role(["dirty", mounted.good + "/mapped"])
            try other.expect("ready")
            other.send("go on")
            #expect(other.line() == "OK")
            try Command.run(["dd", "if=/dev/zero", "of=\(mounted.good)/mapped", "bs=4k", "count=256", "conv=notrunc,fsync"], within: 60)
                .orThrow()
            try mounted.fixture.revoke("hung")
            writer.kill()
            #expect(writer.wait() == -SIGKILL, "whoever stored it can be ended")
        }

        /// Before Linux 6.2 a program cannot store as much before write-back begins
        /// (docs/conformance.md, “How much it costs”).
        private static let storedPages = Machine.kernel >= (6, 2) ? [64, 3000] : [64]

        @Test(
            "Dirty mappings of a hanging source delay neither a refusal nor another grant",
            arguments: ["shared", "exclusive"],
            storedPages)
        func dirtyMappings(cache: String, pages: Int) throws {
            let mounted = try Mounted(cache: cache, files: [("mapped", pages * 4096)])
            defer { mounted.source.end() }
            // A new operation and the other grant do not wait for the write-back, which has two
            // seconds. The best of three.
            var best = (refused: Double.infinity, worst: Int.max)
            for turn in 0..<3 where best.refused >= 1500 || best.worst >= 1_900_000_000 {
                if turn > 0 {
                    try mounted.fixture.restore("hung")
                    try mounted.fixture.wait(until: "it is back") { try Probe.call("stat", mounted.hung + "/mapped") == "OK" }
                }
                let (refused, worst) = try givenUp(mounted)
                best = (min(best.refused, refused), min(best.worst, worst))
                mounted.source.goOn()
                try mounted.fixture.wait(until: "what was stuck is gone") { try mounted.inFlight == 0 }
                try expectCall("stat", mounted.hung + "/mapped", gives: "EACCES")
            }
            #expect(best.refused < 1500 && best.worst < 1_900_000_000, "\(best)")
        }

        /// Gives when a fresh operation was refused, in milliseconds, and the other grant's worst turn meanwhile, in nanoseconds.
        private func givenUp(_ mounted: Mounted) throws -> (refused: Double, worst: Int) {
            try mounted.source.hang("write")
            let writer = try Probe.role(["dirty", mounted.hung + "/mapped"])
            try writer.expect("ready")
            let watching = try Child(
                [
                    "bash", "-uc",
                    "while :; do t=$(date +%s%N); echo x > \"$1/w\"; cat \"$1/f1\" \"$1/w\" > /dev/null && echo $(($(date +%s%N) - t)); done",
                    "bash", mounted.good,
                ])
            let (revoked, refused) = try mounted.timedRevocation()
            #expect(revoked.mounts[0].pending >= 1)
            watching.kill()
            var worst = 0
            while let line = watching.line() { worst = max(worst, Int(line) ?? .max) }
            print("the other grant's worst turn: \(worst / 1_000_000) ms")
            #expect(worst > 0)
            try mounted.expectOthersGoOn("given up")
            writer.send("go on")
            #expect(writer.line() != nil, "the program with the mapping hangs")
            writer.send("end")
            #expect(writer.wait() != nil)
            return (refused, worst)
        }

        @Test("A mount can be removed while a source hangs", arguments: ["unmount", "umount", "SIGTERM", "SIGKILL"])
        func end(how: String) throws {
            let mounted = try Mounted(files: [("file", 4096)])
            defer { mounted.source.end() }
            let caller = try Probe.role(["late", "read", mounted.hung + "/file"])
            try caller.expect("ready")
            let daemon = try mounted.fixture.daemon(at: mounted.mountpoint)
            try mounted.source.hang()
            caller.send("now")
            try mounted.fixture.wait(until: "the caller is stuck") { try mounted.inFlight >= 1 }
            _ = try mounted.revokeHung()
            try caller.expect(Machine.refusalsOfReads)
            switch how {
            case "unmount": try mounted.fixture.grantfs("unmount", mounted.mountpoint).orThrow()
            case "umount":
                try Command.run(Identity.isRoot ? ["umount", "-l", mounted.mountpoint] : ["fusermount3", "-uz", mounted.mountpoint])
            case "SIGTERM": kill(daemon, SIGTERM)
            default: kill(daemon, SIGKILL)
            }
            if how == "SIGKILL" {
                // The kernel ends a process when its last thread can end, and this one waits for the source.
                mounted.source.goOn()
            }
            try mounted.fixture.wait(until: "the mount is gone or dead") {
                how == "SIGKILL" ? !Processes.isRunning(daemon) : !mounted.fixture.mountpoints.contains(mounted.mountpoint)
            }
            mounted.source.goOn()
            // Other tests' mount namespaces have the mount for as long as they last.
            try mounted.fixture.wait(until: "the daemon is gone", within: 120) { !Processes.isRunning(daemon) }
            try mounted.fixture.mount()
            try mounted.expectOthersGoOn("mounted again")
            try expectCall("stat", mounted.hung + "/file", gives: "EACCES")
        }
    }
}
