import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct DenialTests {
        private struct Entry: Decodable {
            let event: String
            let name: String?
            let detail: String
            let pid: Int32
            let program: String
            let count: Int?
            let path: String?
        }

        /// The number of refused operations in the log for a grant, and the last process.
        private func refused(_ name: String, _ fixture: MountFixture) throws -> (count: Int, lines: Int, last: Int32?) {
            let entries: [Entry] = try fixture.grantfs("log", "--json").orThrow().decoded()
            let denied = entries.filter { $0.event == "denied" && $0.name == name }
            let counts = denied.map { Int($0.detail.split(separator: " ").first ?? "") ?? 0 }
            return (counts.reduce(0, +), denied.count, denied.last?.pid)
        }

        @Test("The log names the rule that refused an operation", arguments: RuledMount.modes)
        func rules(_ mode: String) throws {
            let mounted = try RuledMount(
                mode, rules: ["--hide", ".env*", "--protect", ".git/hooks", "--only", "!*.o", "--only", "*"],
                files: [".env", ".git/hooks/h", "plain", "a.o"])
            let refused: [(call: [String], path: String, rule: String)] = [
                (["cat", ".env"], ".env", "--hide “.env*”"), (["mv", "plain", ".env2"], ".env2", "--hide “.env*”"),
                (["touch", ".git/hooks/new"], ".git/hooks", "--protect “.git/hooks”"),
                (["chmod", "600", ".git/hooks/h"], ".git/hooks/h", "--protect “.git/hooks”"),
                (["mv", ".git", ".g"], ".git", "a rule for names below"),
            ]
            for (call, path, rule) in refused {
                #expect(try Command.run(["sh", "-c", "cd \"$1\"; shift; exec \"$@\"", "sh", mounted.place] + call).status != 0)
                try mounted.fixture.wait(until: "\(call) is in the log") {
                    let entries: [Entry] = try mounted.fixture.grantfs("log", "--json").orThrow().decoded()
                    return entries.contains {
                        $0.event == "denied" && $0.program == call[0] && $0.path == mounted.source + "/" + path
                            && $0.detail.hasSuffix("by " + rule)
                    }
                }
            }
            let count = try mounted.fixture.log().count
            #expect(try Command.run(["cat", mounted.place + "/missing"]).status != 0)
            #expect(try mounted.call("stat", "plain") == "OK")
            #expect(try mounted.fixture.log().count == count, "what is missing is not refused")
        }

        @Test("The log names a refused program although it has ended")
        func programs() throws {
            let fixture = try MountFixture()
            for name in ["ro", "held"] {
                let source = try fixture.source(name)
                try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/file"))
                try fixture.grant(source)
            }
            let mountpoint = try fixture.mount()
            try fixture.grantfs("set", "ro", "--access", "read-only").orThrow()
            func lastDenied(_ name: String) throws -> Entry? {
                let entries: [Entry] = try fixture.grantfs("log", "--json").orThrow().decoded()
                return entries.last { $0.event == "denied" && $0.name == name }
            }
            _ = try Command.run(["rm", "-f", mountpoint + "/ro/file"])
            try fixture.wait(until: "rm is named") { try lastDenied("ro")?.program == "rm" }
            #expect(try lastDenied("ro")?.count == 1)
            let holder = try Child(["bash", "-c", "cd \"$1\"; echo ready; read x; exec ls", "bash", mountpoint + "/held"])
            try holder.expect("ready")
            try fixture.revoke("held")
            holder.send("go on")
            #expect(holder.wait() != nil)
            try fixture.wait(until: "ls is named") { try lastDenied("held")?.program == "ls" }
            _ = try Command.run(["cat", mountpoint + "/held/file"])
            try fixture.wait(until: "cat is named") { try lastDenied("held")?.program == "cat" }
        }

        @Test("The log counts refusals by read-only and withdrawn grants once a second")
        func refusals() throws {
            let fixture = try MountFixture()
            for name in ["ro", "held"] {
                let source = try fixture.source(name)
                for number in 1...40 { try Data("x".utf8).write(to: URL(fileURLWithPath: source + "/\(number)")) }
            }
            try fixture.grant(fixture.base + "/source/ro", name: nil, view: nil, "--read-only")
            try fixture.grant(fixture.base + "/source/held")
            let mountpoint = try fixture.mount()
            func change(_ names: String) throws {
                _ = try Command.run([
                    "bash", "-c", "cd \"$1\"; for i in \(names); do rm -f $i 2> /dev/null; done", "bash", mountpoint + "/ro",
                ])
            }
            let start = Machine.milliseconds
            try change("$(seq 40)")
            try fixture.wait(until: "all are in the log") { try refused("ro", fixture).count == 40 }
            let seconds = (Machine.milliseconds - start) / 1000
            #expect(try Double(refused("ro", fixture).lines) <= seconds + 2)
            var changes = 40
            /// Both grants' refusals are written together: an earlier refusal is in the log once
            /// this one is.
            func writtenDown() throws {
                for _ in 0..<2 {
                    changes += 1
                    try change("1")
                    try fixture.wait(until: "it is in the log") { try refused("ro", fixture).count == changes }
                }
            }

            let holder = try Child([
                "bash", "-c", "cd \"$1\"; echo ready; read x; for i in $(seq 40); do rm -f $i 2> /dev/null; done", "bash",
                mountpoint + "/held",
            ])
            try holder.expect("ready")
            try fixture.revoke("held")
            holder.send("go on")
            #expect(holder.wait() != nil)
            try writtenDown()
            let before = try refused("held", fixture)
            #expect(before.count >= 1 && before.last != nil)
            // Made active again, it tells nothing twice.
            try fixture.restore("held")
            try writtenDown()
            #expect(try refused("held", fixture).count == before.count)
            #expect(try refused("ro", fixture).count == changes)
        }
    }
}
