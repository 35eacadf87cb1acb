import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A thread without a processor has a reply from before the revocation, and processes it afterwards.
    @Suite(.serialized) struct LateReplyTests {
        static let isPossible = Identity.isRoot && Machine.hasFUSE && ProcessInfo.processInfo.activeProcessorCount > 1

        /// A grant whose filesystem holds replies back, and a thread that gets its reply when its processor is busy.
        struct Late {
            let fixture: MountFixture
            let source: HangingSource
            let attack: Attack

            /// `operation`: the operation of the granted filesystem that `call` leads to.
            init(_ call: String, _ operation: String, cache: String) throws {
                fixture = try MountFixture()
                source = try HangingSource("granted", in: fixture)
                for name in ["file", "unknown"] { try source.file(name) }
                try fixture.grant(source.directory)
                let directory = try fixture.mount(options: "cache=\(cache)") + "/granted"
                attack = try Attack("late", [call, directory])
                if call == "fstat" { try Command.run(["touch", source.behind + "/file"]).orThrow() }
                try source.hang(operation)
                attack.send("call")
                try fixture.wait(until: "the call has reached the granted filesystem") { try inFlight() > 0 }
                attack.send("busy")
                let line = attack.line()
                guard line == "busy" else { throw TestFailure("the processor is not busy: \(line ?? "no line")") }
                source.goOn()
                try fixture.wait(until: "the call is answered") { try inFlight() == 0 }
            }

            private func inFlight() throws -> Int {
                try fixture.status().mounts.first?.grants.first { $0.name == "granted" }?.inFlight ?? 0
            }

            /// What the thread finds out about the file now.
            func find() -> String? {
                attack.send("look")
                return attack.line()
            }

            func end() {
                attack.end()
                source.end()
                fixture.finish()
            }
        }

        @Test(
            "A late reply shows nothing of its file once the revocation is confirmed",
            .enabled(if: isPossible, "needs root, /dev/fuse and two processors"), arguments: ["shared", "exclusive"],
            [
                ("link", "link"), ("chmod", "chmod"), ("truncate", "truncate"), ("lookup", "getattr"), ("create", "create"),
                ("mkdir", "mkdir"), ("symlink", "symlink"), ("list", "readdir"),
            ])
        func attributes(cache: String, call: (name: String, operation: String)) throws {
            let late = try Late(call.name, call.operation, cache: cache)
            defer { late.end() }
            #expect(try late.fixture.revoke("granted", "--timeout", "30")[0].isConfirmed)
            #expect(late.find() == "EACCES")
        }

        @Test(
            "A late reply that keeps a page locked does not delay a revocation",
            .enabled(if: isPossible, "needs root, /dev/fuse and two processors"), arguments: ["shared", "exclusive", "none"])
        func page(cache: String) throws {
            let late = try Late("fault", "read", cache: cache)
            defer { late.end() }
            // The processor is busy until the thread is asked.
            #expect(try late.fixture.revoke("granted", "--timeout", "30")[0].isConfirmed)
            #expect(late.find() == "SIGBUS")
        }
    }
}
