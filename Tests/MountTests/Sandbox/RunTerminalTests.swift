import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(
        "The terminal of a sandbox",
        .enabled(
            if: Machine.hasSandboxes && Command.exists("script"), "bubblewrap cannot make a sandbox here, or there is no script(1)"))
    struct RunTerminal {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
        }

        /// In a terminal that script(1) provides. The child's input is typed into it.
        private func start(_ script: String) throws -> Child {
            let file = fixture.base + "/script"
            try script.write(toFile: file, atomically: false, encoding: .utf8)
            try FileManager.default.copyItem(atPath: file, toPath: source + "/script")
            let line = "'\(Programs.grantfs)' run --grant '\(source)' -- sh '\(source)/script'"
            return try Child(["script", "-qec", line, "/dev/null"], environment: fixture.environment)
        }

        /// The next line without what a terminal adds to its end.
        private func expect(_ text: String, from program: Child) throws {
            var seen: [String] = []
            while let line = program.line() {
                if line.contains(text) { return }
                seen.append(line)
            }
            Issue.record("“\(text)” did not come: \(seen)")
        }

        @Test("A sandbox has its own terminal with job control")
        func jobControl() throws {
            let program = try start(
                """
                stty -F /dev/tty size || exit 1
                set -m
                sleep 1000 &
                jobs >/tmp/jobs
                grep -q Running /tmp/jobs && kill %1 && : </dev/tty && echo controlled
                exit 7
                """)
            try expect("0 0", from: program)
            try expect("controlled", from: program)
            #expect(program.wait(within: 30) == 7)
        }

        @Test("Typed characters reach the foreground group as signals and input")
        func typing() throws {
            let program = try start(
                """
                trap 'echo caught; exit 3' INT
                echo ready; read -r line; echo "got $line"
                while :; do sleep 0.1; done
                """)
            try expect("ready", from: program)
            program.send("words")
            try expect("got words", from: program)
            program.send("\u{3}")
            try expect("caught", from: program)
            #expect(program.wait(within: 30) == 3)
        }

        @Test("A program in a pipeline has a terminal of its own for its input")
        func pipe() throws {
            let line = "'\(Programs.grantfs)' run --grant '\(source)' -- sh -c 'test -t 0 && (: </dev/tty) && echo controlled' | cat"
            let output = try Command.run(["script", "-qec", line, "/dev/null"], environment: fixture.environment, within: 60)
            #expect(output.text.contains("controlled"), "\(output)")
        }

        @Test("A program in the background reads no typed input", arguments: ["", "</dev/console"])
        func background(source input: String) throws {
            let script = "echo up; timeout 3 head -c 5 \(input) >\(source)/stolen 2>/dev/null; :"
            try script.write(toFile: source + "/script", atomically: false, encoding: .utf8)
            let line = """
                set -m; '\(Programs.grantfs)' run --grant '\(source)' -- sh '\(source)/script' & read -r line; echo "got $line"; wait
                """
            let program = try Child(
                ["script", "-qec", "bash -c '\(line.replacingOccurrences(of: "'", with: "'\\''"))'", "/dev/null"],
                environment: fixture.environment)
            try expect("up", from: program)
            program.send("words")
            try expect("got words", from: program)
            #expect(program.wait(within: 30) == 0)
            #expect(try String(contentsOfFile: source + "/stolen", encoding: .utf8) == "")
        }
    }
}
