import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Grants with a cache mode of their own when directories, the store, or one of the processes are gone or stand still.
    @Suite(.enabled(if: Identity.isRoot, "only root's mounts have several cache modes")) struct ACacheModeOfAGrantWithFaults {
        private let fixture: MountFixture
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            mountpoint = try fixture.directory("mount")
            for name in ["alone", "other"] { try Data(name.utf8).write(to: URL(fileURLWithPath: try fixture.source(name) + "/file")) }
            try fixture.grantfs("grant", fixture.base + "/source/other").orThrow()
        }

        private func grantAlone() throws { try fixture.grantfs("grant", fixture.source("alone"), "--cache", "exclusive").orThrow() }

        private func read(_ path: String) throws -> Output { try Command.run(["cat", mountpoint + "/" + path], within: 30) }

        private func names() throws -> [String] { try Command.run(["ls", mountpoint], within: 30).orThrow().lines }

        private func isMissing(_ name: String) throws -> Bool {
            let errors = try Command.run(["stat", mountpoint + "/" + name], within: 30).errors
            return try errors.contains("No such file or directory") && !names().contains(name)
        }

        /// The process that mounts the grants' directories.
        private func maker() throws -> pid_t {
            let maker = Processes.parent(of: try fixture.daemon(at: mountpoint))
            return maker > 1 ? maker : try { throw TestFailure("nobody has started the daemon") }()
        }

        @Test("one that was released is missing, and is back, of the same directory, when its filesystem was mounted again")
        func released() throws {
            let volume = try Volume(.ext4, at: "disk", in: fixture)
            let source = volume.place + "/inner"
            try FileManager.default.createDirectory(atPath: source, withIntermediateDirectories: false)
            try Data("on disk".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grantfs("grant", source, "--cache", "exclusive").orThrow()
            try fixture.mount()
            for round in 0..<2 {
                #expect(try read("inner/file").text == "on disk", "round \(round)")
                try fixture.grantfs("release", "inner").orThrow()
                #expect(try read("inner/file").status != 0, "round \(round)")
                try volume.unmount().orThrow()
                try fixture.wait(until: "it is missing") { try isMissing("inner") }
                try volume.mount()
                try fixture.wait(until: "it is back") { try read("inner/file").text == "on disk" }
                #expect(try names() == ["inner", "other"], "round \(round)")
            }
            #expect(try fixture.revoke("inner")[0].isConfirmed && read("inner/file").errors.contains("Permission denied"))
        }

        @Test("it is back when a store that could not be read can be again")
        func unreadableStore() throws {
            try grantAlone()
            try fixture.mount()
            #expect(try read("alone/file").text == "alone")
            let store = fixture.store + "/grants.sqlite"
            #expect(rename(store, store + ".away") == 0)
            try fixture.wait(until: "it is refused") { try read("alone/file").errors.contains("Permission denied") }
            #expect(rename(store + ".away", store) == 0)
            try fixture.wait(until: "both are back") { try read("alone/file").text == "alone" && read("other/file").text == "other" }
            try fixture.grantfs("set", "alone", "--name", "renamed").orThrow()
            #expect(try read("renamed/file").text == "alone" && names() == ["other", "renamed"])
        }

        @Test("one whose directory was removed is missing, as any other grant, and commands do not wait for it")
        func removed() throws {
            try grantAlone()
            try fixture.mount()
            #expect(try read("alone/file").text == "alone")
            try FileManager.default.removeItem(atPath: fixture.base + "/source/alone")
            try fixture.wait(until: "it is missing") { try isMissing("alone") }
            try fixture.grantfs("revoke", "alone").orThrow()
            #expect(try read("alone/file").errors.contains("Permission denied"))
            try fixture.restore("alone")
            try fixture.wait(until: "it is missing") { try isMissing("alone") }
            try fixture.grantfs("unmount", mountpoint).orThrow()
            // From the beginning on.
            try fixture.mount()
            #expect(try isMissing("alone") && read("other/file").text == "other")
        }

        @Test("one whose directory went to a Trash is missing, and back when that is")
        func trashed() throws {
            try grantAlone()
            try fixture.mount()
            let (source, trash) = (fixture.base + "/source/alone", fixture.base + "/source/.Trash-0/files")
            try FileManager.default.createDirectory(atPath: trash, withIntermediateDirectories: true)
            for round in 0..<2 {
                #expect(rename(source, trash + "/alone") == 0)
                try fixture.wait(until: "it is missing") { try isMissing("alone") }
                #expect(rename(trash + "/alone", source) == 0)
                try fixture.wait(until: "it is back") { try read("alone/file").text == "alone" }
                #expect(try names() == ["alone", "other"], "round \(round)")
            }
        }

        @Test("a command waits for the process that mounts until its time is over, and says that it has not confirmed")
        func standingStill() throws {
            try grantAlone()
            try fixture.mount()
            let maker = try maker()
            #expect(kill(maker, SIGSTOP) == 0)
            defer { kill(maker, SIGCONT) }
            let said = try fixture.grantfs("set", "other", "--cache", "exclusive", "--timeout", "2")
            #expect(said.status == 3 && said.errors.contains("pid \(maker)) has not done so"), "\(said)")
            #expect(try read("other/file").errors.contains("Permission denied"))
            // What takes away does not wait for it.
            #expect(try fixture.revoke("alone")[0].isConfirmed)
            let restoring = try Child(
                [Programs.grantfs(for: .current), "restore", "alone", "--timeout", "60"], environment: fixture.environment)
            try fixture.wait(until: "it is recorded") { try fixture.list().map(\.name) == ["alone", "other"] }
            #expect(kill(maker, SIGCONT) == 0 && restoring.wait() == 0)
            #expect(try read("alone/file").text == "alone")
            try fixture.wait(until: "the other one is there as well") { try read("other/file").text == "other" }
            try fixture.grantfs("remove", "other").orThrow()
        }

        @Test("names that are exchanged while the process that mounts stands still lead to no other grant")
        func exchanged() throws {
            try grantAlone()
            try fixture.grantfs("set", "other", "--cache", "exclusive").orThrow()
            try fixture.mount()
            let maker = try maker()
            #expect(try read("alone/file").text == "alone" && read("other/file").text == "other")
            #expect(kill(maker, SIGSTOP) == 0)
            defer { kill(maker, SIGCONT) }
            func rename(_ old: String, _ new: String) throws {
                let said = try fixture.grantfs("set", old, "--name", new, "--timeout", "0.5")
                #expect(said.status == 3 && said.errors.contains("has not confirmed"), "\(said)")
            }
            // Nobody looks one of them up in between, or somebody does.
            for looksInBetween in [false, true, false] {
                try rename("alone", "third")
                if looksInBetween { #expect(try read("alone/file").status != 0 && read("other/file").status == 0) }
                try rename("other", "alone")
                if looksInBetween { #expect(try read("alone/file").text != "alone") }
                try rename("third", "other")
                #expect(try read("alone/file").status != 0 && read("other/file").status != 0)
                #expect(kill(maker, SIGCONT) == 0)
                try fixture.wait(until: "each leads to its own") {
                    try read("alone/file").text == "other" && read("other/file").text == "alone"
                }
                for (old, new) in [("alone", "third"), ("other", "alone"), ("third", "other")] {
                    try fixture.grantfs("set", old, "--name", new).orThrow()
                }
                #expect(try read("alone/file").text == "alone" && read("other/file").text == "other")
                #expect(kill(maker, SIGSTOP) == 0)
            }
        }

        @Test("names that are exchanged lead to no other grant while the daemon of the mode has not heard of it")
        func exchangedUnheard() throws {
            try grantAlone()
            try fixture.grantfs("set", "other", "--cache", "exclusive").orThrow()
            try fixture.mount()
            let run = fixture.store + "/run"
            let files = try FileManager.default.contentsOfDirectory(atPath: run)
            let main = try #require(files.first { $0.hasSuffix(".placed") }).dropLast(".placed".count)
            // That of the mode. Without it, the daemon looks into the store once a second.
            let socket = run + "/" + (try #require(files.first { $0.hasSuffix(".sock") && !$0.hasPrefix(main) }))
            func contents(_ name: String) -> String? {
                FileManager.default.contents(atPath: mountpoint + "/\(name)/file").map { String(decoding: $0, as: UTF8.self) }
            }
            var wrong: Set<String> = []
            for round in 0..<3 {
                let (first, second) = round % 2 == 0 ? ("alone", "other") : ("other", "alone")
                #expect(contents("alone") == first && contents("other") == second)
                #expect(rename(socket, socket + ".away") == 0)
                func set(_ old: String, _ new: String, _ meanwhile: () -> Void) throws {
                    let words = ["set", old, "--name", new, "--timeout", "0.05"]
                    let setting = try Child([Programs.grantfs(for: .current)] + words, environment: fixture.environment)
                    while Processes.isRunning(setting.pid) { meanwhile() }
                    #expect(setting.wait() == 3)
                }
                try set("alone", "third") {}
                try set("other", "alone") { if contents("alone") == first { wrong.insert("the second, round \(round)") } }
                try set("third", "other") {
                    if contents("alone") == first || contents("other") == second { wrong.insert("the third, round \(round)") }
                }
                #expect(rename(socket + ".away", socket) == 0)
                try fixture.wait(until: "each leads to its own") { contents("alone") == second && contents("other") == first }
            }
            #expect(wrong.isEmpty)
        }

        @Test(
            "when the process that mounts, the main daemon, or both were killed, grantfs unmount takes all of it away",
            arguments: ["maker", "daemon", "both"])
        func killed(_ which: String) throws {
            try grantAlone()
            try fixture.mount()
            #expect(try read("alone/file").text == "alone")
            let maker = try maker()
            let daemon = try fixture.daemon(at: mountpoint)
            for (name, pid) in [("maker", maker), ("daemon", daemon)] where which == name || which == "both" {
                #expect(kill(pid, SIGKILL) == 0)
            }
            try fixture.wait(until: "it is refused") { try read("alone/file").status != 0 }
            if which == "maker" {
                #expect(try read("other/file").text == "other")
                // Nobody is left who could mount it.
                try fixture.revoke("alone")
                let said = try fixture.grantfs("restore", "alone", "--timeout", "60")
                #expect(said.status == 3 && said.errors.contains("has ended"), "\(said)")
            }
            try fixture.grantfs("unmount", mountpoint).orThrow()
            #expect(!fixture.mountpoints.contains { $0.hasPrefix(mountpoint) })
            try fixture.wait(until: "nothing is mounted") { fixture.mountpoints.isEmpty }
            try fixture.wait(until: "nothing is left in the store") {
                // A command removes what daemons that were killed have left.
                try fixture.grantfs("status").orThrow()
                return try FileManager.default.contentsOfDirectory(atPath: fixture.store + "/run").isEmpty
            }
            try fixture.mount()
            #expect(try read("alone/file").text == "alone" && read("other/file").text == "other")
        }
    }
}
