import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite("The processes of a run", .enabled(if: Machine.hasSandboxes, "needs bubblewrap"))
    struct RunProcesses {
        private struct Process {
            let pid: pid_t
            let parent: pid_t
            let name: String
            let words: String
            let session: Int

            init?(_ pid: pid_t) {
                let status = Processes.kernelText("/proc/\(pid)/stat")
                guard let end = status.lastIndex(of: ")") else { return nil }
                let fields = status[status.index(after: end)...].split(separator: " ")
                guard fields.count > 3, let parent = pid_t(fields[1]), let session = Int(fields[3]) else { return nil }
                (self.pid, self.parent, self.session) = (pid, parent, session)
                name = Processes.name(of: pid)
                words = Processes.kernelText("/proc/\(pid)/cmdline").replacingOccurrences(of: "\0", with: " ")
            }
        }

        private func children(of parent: pid_t) -> [Process] {
            let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
            return names.compactMap { pid_t($0) }.compactMap { Process($0) }.filter { $0.parent == parent }
        }

        @Test(
            "A run's daemon and keeper have their own sessions and no inherited descriptors"
        )
        func names() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("work")
            let script = "exec 9<\"$1\"; exec \"$2\" run --grant \"$3\" -- sh -c 'echo begun; read line' the-programs-own-word"
            let held = fixture.base + "/held"
            #expect(FileManager.default.createFile(atPath: held, contents: nil))
            let command = try Child(["sh", "-c", script, "sh", held, Programs.grantfs, source], environment: fixture.environment)
            try command.expect("begun")
            let daemon = try #require(children(of: command.pid).first { $0.words.contains(" mount ") })
            let keeper = try #require(children(of: daemon.pid).first)
            #expect(daemon.name == "grantfs" && keeper.name == "grantfs-keeper")
            #expect(daemon.words.hasPrefix("grantfs ") && keeper.words.hasPrefix("grantfs keeper"), "\(daemon.words), \(keeper.words)")
            for process in [daemon, keeper] {
                #expect(process.session == Int(process.pid))
                #expect(!process.words.contains("the-programs-own-word"), "\(process.words)")
                let open = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(process.pid)/fd")) ?? []
                let targets = open.compactMap {
                    try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(process.pid)/fd/\($0)")
                }
                #expect(!targets.isEmpty && !targets.contains(held))
            }
            command.kill()
            try fixture.wait(until: "both are gone", within: 60) {
                // A zombie has no words.
                [daemon, keeper].allSatisfy { Process($0.pid)?.words.isEmpty ?? true }
            }
            #expect(fixture.mountpoints.isEmpty)
        }
    }
}
