import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// They use the whole machine for seconds and inspect all of it for remains, so they run alone.
    @Suite(
        .serialized,
        .enabled(
            if: Machine.hasSandboxes && ProcessInfo.processInfo.environment["GRANTFS_ALONE"] != nil, "needs bubblewrap and GRANTFS_ALONE"))
    struct AHundredSandboxes {
        private static let count = 100

        /// The processes of sandboxes, by number and name, without zombies.
        private static func processes() -> Set<String> {
            let numbers = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) }
            let named = numbers.compactMap { pid -> String? in
                let name = Processes.name(of: pid)
                return ["grantfs", "bwrap"].contains { name.hasPrefix($0) } && Processes.isRunning(pid) ? "\(pid) \(name)" : nil
            }
            return Set(named)
        }

        /// The mounts, and the grantfs files in the directory of temporary files: by name, because
        /// compilers and others make theirs at the same time.
        private static func places() throws -> Set<String> {
            let mounts = Processes.kernelText("/proc/self/mountinfo").split(separator: "\n").map { "mount " + $0.split(separator: " ")[4] }
            let files = try ["/dev/shm", Programs.temporaryDirectory].flatMap { directory in
                try FileManager.default.contentsOfDirectory(atPath: directory).filter { name in
                    ["grantfs", "bwrap"].contains { name.contains($0) }
                }
                .map { "\(directory)/\($0)" }
            }
            return Set(mounts + files)
        }

        private static func files(below directory: String) throws -> [String] {
            try Command.run(["find", directory, "-mindepth", "1", "-printf", "%P\n"]).orThrow().lines.sorted()
        }

        @Test(
            "A hundred sandboxes at once succeed and leave no mounts",
            arguments: ["with one store for all", "with a store each"])
        func atOnce(_ stores: String) throws {
            let fixture = try MountFixture()
            let isShared = stores == "with one store for all"
            let sources = try (0..<Self.count).map { try fixture.source("\($0)") }
            // What stays of a store is what the first command makes.
            try fixture.grantfs("run", "--grant", sources[0], "--", "true").orThrow()
            let kept = try Self.files(below: fixture.store)
            let (processes, places) = (Self.processes(), try Self.places())

            let script = "echo begun; read word; echo \"$0 $word\" > file; cat file; ls -A"
            let programs = try sources.enumerated().map { number, source in
                let store = isShared ? fixture.store : fixture.base + "/stores/\(number)"
                let words = ["run", "--store", store, "--grant", source, "--", "sh", "-c", "cd '\(source)'; " + script, "\(number)"]
                return try Child([Programs.grantfs] + words, separateErrors: true)
            }
            // Not one goes on before the last has begun.
            for program in programs { #expect(program.line(within: 120) == "begun") }
            for (number, program) in programs.enumerated() { program.send("word \(number)") }
            for (number, program) in programs.enumerated() {
                program.closeInput()
                let said = try #require(program.collected(within: 120))
                #expect(String(decoding: said.output, as: UTF8.self) == "\(number) word \(number)\nfile\n")
                #expect(said.errors.isEmpty)
                #expect(program.wait(within: 60) == 0)
            }
            for (number, source) in sources.enumerated() {
                #expect(try String(contentsOfFile: source + "/file", encoding: .utf8) == "\(number) word \(number)\n")
            }

            try fixture.wait(until: "no process is left") { Self.processes().subtracting(processes).isEmpty }
            #expect(try Self.places().subtracting(places) == [])
            let all = isShared ? [fixture.store] : (0..<Self.count).map { fixture.base + "/stores/\($0)" }
            for store in all {
                // Of connections that close at the same moment each may see another, and SQLite then leaves its write-ahead log
                // (sqlite3WalClose wants an exclusive lock). The next connection that closes alone removes it: this command's.
                let grants: [GrantDocument] = try fixture.grantfs("list", "--all", "--json", "--store", store).orThrow().decoded()
                #expect(grants.isEmpty)
                let left = try Self.files(below: store)
                #expect(left == kept)
            }
        }
    }
}
