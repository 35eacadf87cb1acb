import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Many who append to one file, through two mounts of its view and on the host.
    @Suite struct Appending {
        /// $1 how to open, $2 how many lines a writer, then a place for each writer. Prints what is wrong with the file as the first place's host has it.
        private static let writers = """
            import os, sys
            flags, count, places = getattr(os, sys.argv[1]) | os.O_APPEND, int(sys.argv[2]), sys.argv[3:]
            children = []
            for number, place in enumerate(places):
                child = os.posix_spawn(sys.executable, [sys.executable, '-c', '''
            import os, sys
            fd = os.open(sys.argv[1], int(sys.argv[2]) | os.O_CREAT, 0o666)
            for i in range(int(sys.argv[4])):
                line = b'writer %s line %d %s end\\\\n' % (sys.argv[3].encode(), i, b'.' * (i % 90))
                assert os.write(fd, line) == len(line)
            ''', place + '/log', str(flags), str(number), str(count)], os.environ)
                children.append(child)
            print(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
            """

        private func appended(_ how: String, at places: [String], to file: String) throws -> (lines: Int, whole: Int, bytes: Int) {
            let output = try Command.run(["python3", "-c", Self.writers, how, "150"] + places, within: 60).orThrow()
            #expect(output.trimmed == "0")
            let lines = String(decoding: try Data(contentsOf: URL(fileURLWithPath: file)), as: UTF8.self).split(separator: "\n")
            let whole = Set(lines.filter { $0.hasPrefix("writer ") && $0.hasSuffix(" end") && !$0.dropFirst().contains("writer") })
            return (lines.count, whole.count, lines.reduce(0) { $0 + $1.utf8.count + 1 })
        }

        private func prepared(_ cache: String) throws -> (fixture: MountFixture, source: String, mounts: [String]) {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mounts = try ["one", "two"].map { try fixture.mount(at: $0, options: "cache=\(cache)") + "/a" }
            return (fixture, source, mounts)
        }

        /// What six writers of 150 lines write: the same lines but for the writer's number, which is one digit.
        private static let bytesWanted = 6 * (0..<150).reduce(0) { $0 + "writer 0 line \($1)  end\n".utf8.count + $1 % 90 }

        @Test("what can only append loses and tears no line: two mounts and the host", arguments: ["shared", "none"])
        func writeOnly(cache: String) throws {
            let (fixture, source, mounts) = try prepared(cache)
            let result = try appended("O_WRONLY", at: [mounts[0], mounts[1], source, mounts[0], mounts[1], source], to: source + "/log")
            #expect(result == (900, 900, Self.bytesWanted))
            fixture.finish()
        }

        @Test("what can read as well loses and tears no line of one mount's writers", arguments: ["shared", "none"])
        func readAndWrite(cache: String) throws {
            let (fixture, source, mounts) = try prepared(cache)
            let result = try appended("O_RDWR", at: Array(repeating: mounts[0], count: 6), to: source + "/log")
            #expect(result == (900, 900, Self.bytesWanted))
            fixture.finish()
        }

        /// The kernel sends a write that crosses a page in two requests (docs/semantics.md); each of them is appended.
        @Test("what can read as well loses no byte among two mounts and the host", arguments: ["shared", "none"])
        func readAndWriteEverywhere(cache: String) throws {
            let (fixture, source, mounts) = try prepared(cache)
            let result = try appended("O_RDWR", at: [mounts[0], mounts[1], source, mounts[0], mounts[1], source], to: source + "/log")
            #expect(result.bytes == Self.bytesWanted)
            fixture.finish()
        }
    }
}
