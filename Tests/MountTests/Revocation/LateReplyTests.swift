import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A thread without a processor has a reply from before the revocation, and processes it afterwards.
    @Suite(.serialized) struct LateReplyTests {
        static let isPossible = Identity.isRoot && Machine.hasFUSE && ProcessInfo.processInfo.activeProcessorCount > 1

        /// Where a reply is held back until the caller's processor is busy.
        enum Place {
            /// In an operation of the granted filesystem.
            case source(String)
            /// At a stop point of the daemon.
            case stop(String)
        }

        /// A grant whose replies are held back, and a thread that gets its reply when its processor is busy.
        struct Late {
            let fixture: MountFixture
            let source: HangingSource?
            let attack: Attack

            init(_ call: String, _ place: Place, cache: String) throws {
                fixture = try MountFixture()
                var stops: StopPoints?
                switch place {
                case .source:
                    let hanging = try HangingSource("granted", in: fixture)
                    for name in ["file", "unknown"] { try hanging.file(name) }
                    symlink("file", hanging.behind + "/link")
                    source = hanging
                    try fixture.grant(hanging.directory)
                case .stop:
                    source = nil
                    let directory = try fixture.source("granted")
                    try Data("text".utf8).write(to: URL(fileURLWithPath: directory + "/file"))
                    try fixture.grant(directory)
                    stops = try StopPoints(fixture)
                }
                let directory = try fixture.mount(options: "cache=\(cache)") + "/granted"
                attack = try Attack("late", [call, directory])
                switch place {
                case .source(let operation): try source?.hang(operation)
                case .stop(let point): stops?.arm(point)
                }
                attack.send("call")
                switch place {
                case .source: try fixture.wait(until: "the call has reached the granted filesystem") { try inFlight() > 0 }
                case .stop(let point): try stops?.awaitStop(point)
                }
                attack.send("busy")
                let line = attack.line()
                guard line == "busy" else { throw TestFailure("the processor is not busy: \(line ?? "no line")") }
                switch place {
                case .source: source?.goOn()
                case .stop(let point): stops?.goOn(point)
                }
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
                source?.end()
                fixture.finish()
            }
        }

        @Test(
            "A late reply shows nothing of its file once the revocation is confirmed",
            .enabled(if: isPossible, "needs root, /dev/fuse and two processors"), arguments: ["shared", "exclusive"],
            [
                ("link", "link"), ("chmod", "chmod"), ("truncate", "truncate"), ("lookup", "getattr"), ("create", "create"),
                ("mknod", "mknod"), ("mkdir", "mkdir"), ("symlink", "symlink"), ("list", "readdir"), ("getattr", "getattr"),
                ("statx", "getattr"),
            ])
        func attributes(cache: String, call: (name: String, operation: String)) throws {
            let late = try Late(call.name, .source(call.operation), cache: cache)
            defer { late.end() }
            #expect(try late.fixture.revoke("granted", "--timeout", "30")[0].isConfirmed)
            #expect(late.find() == "EACCES")
        }

        @Test(
            "A late reply about a nameless file shows nothing after the revocation",
            .enabled(if: isPossible && Machine.kernel >= (6, 1), "needs root, /dev/fuse, two processors and Linux 6.1"),
            arguments: ["shared", "exclusive", "none"])
        func nameless(cache: String) throws {
            let late = try Late("tmpfile", .stop("created"), cache: cache)
            defer { late.end() }
            #expect(try late.fixture.revoke("granted", "--timeout", "30")[0].isConfirmed)
            #expect(late.find() == "EACCES")
        }

        @Test(
            "A late reply that keeps a page locked does not delay a revocation",
            .enabled(if: isPossible, "needs root, /dev/fuse and two processors"), arguments: ["shared", "exclusive", "none"],
            [("fault", "read", "SIGBUS"), ("readlink", "readlink", "EACCES")])
        func page(cache: String, call: (name: String, operation: String, refusal: String)) throws {
            let late = try Late(call.name, .source(call.operation), cache: cache)
            defer { late.end() }
            // The processor is busy until the thread is asked.
            #expect(try late.fixture.revoke("granted", "--timeout", "30")[0].isConfirmed)
            #expect(late.find() == call.refusal)
        }
    }
}
