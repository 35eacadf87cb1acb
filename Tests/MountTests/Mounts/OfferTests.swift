import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct AnOffer {
        private let fixture: MountFixture
        private let offered: String

        init() throws {
            fixture = try MountFixture()
            offered = try fixture.source("data")
            try "kept".write(toFile: offered + "/file", atomically: false, encoding: .utf8)
            try fixture.grant(try fixture.source("other"))
            try fixture.grantfs("grant", "--offered", offered).orThrow()
        }

        /// The answers of the kernel for all that a program may try.
        private func attempts(_ place: String) throws -> String {
            let script = """
                cd '\(place)'; exec 2>&1; set +e
                cat file; ls; stat file; echo x >file; echo x >new; mkdir dir; rm file; mv file other; ln file link; touch .
                chmod 777 .; cat missing; test -e file && echo there; python3 -c 'import os; os.open(".", os.O_RDONLY)'
                """
            return try Command.shell(script).text
        }

        @Test("Without somebody who asks, everything below the name is refused at once", arguments: ["shared", "exclusive", "none"])
        func nobody(cache: String) throws {
            let mount = try fixture.mount(options: "cache=" + cache)
            #expect(try Command.run(["ls", "-l", mount]).orThrow().text.contains("data"))
            #expect(try Command.run(["stat", "-c", "%F", mount + "/data"]).trimmed == "directory")
            let seen = try attempts(mount + "/data")
            #expect(!seen.contains("kept") && !seen.contains("there"), "\(seen)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: offered) == ["file"])
            try fixture.grantfs("set", "data", "--access", "read-only").orThrow()
            let after = try attempts(mount + "/data")
            #expect(after.contains("kept") && after.contains("there") && after.contains("Read-only file system"), "\(after)")
            try fixture.grantfs("set", "data", "--access", "read-write").orThrow()
            #expect(try Command.shell("echo x >'\(mount)/data/new' && cat '\(mount)/data/new'").trimmed == "x")
        }

        @Test("A working directory in an offer works from the answer to a revocation")
        func workingDirectory() throws {
            let mount = try fixture.mount()
            let shell = try Child(["sh", "-c", "cd '\(mount)/data'; echo in; while read -r line; do cat file 2>&1; echo; done"])
            try shell.expect("in")
            shell.send("first")
            #expect(shell.line()?.contains("Permission denied") == true)
            _ = shell.line()
            try fixture.grantfs("set", "data", "--access", "read-write").orThrow()
            shell.send("second")
            #expect(shell.line() == "kept")
            _ = try fixture.revoke("data")
            shell.send("third")
            #expect(shell.line()?.contains("Permission denied") == true)
        }

        @Test("A revoked offer is not opened by an access, and a restored one is a grant")
        func revoked() throws {
            let mount = try fixture.mount()
            _ = try fixture.revoke("data")
            _ = try fixture.grantfs("set", "data", "--access", "read-write")
            #expect(try Command.shell("cat '\(mount)/data/file'").status != 0)
            try fixture.restore("data")
            #expect(try Command.shell("cat '\(mount)/data/file'").trimmed == "kept")
        }

        @Test("An expiry ends an offer, and setting one does not allow it")
        func expiry() throws {
            let mount = try fixture.mount()
            try fixture.grantfs("set", "data", "--expires", "1h").orThrow()
            #expect(try Command.shell("cat '\(mount)/data/file'").status != 0)
            try fixture.grantfs("set", "data", "--expires", "1s").orThrow()
            try fixture.wait(until: "it has expired") { try fixture.list("--all").contains { $0.name == "data" && $0.state == "expired" } }
            #expect(try Command.shell("ls '\(mount)/data'").status != 0)
        }

        @Test("Lists, explanations and exports tell an offer from a grant")
        func shown() throws {
            #expect(try fixture.grantfs("list").orThrow().text.contains("offered"))
            #expect(try fixture.grantfs("list", "data").orThrow().text.contains("offered"))
            let json = try fixture.grantfs("list", "data", "--json").orThrow().text
            #expect(json.contains("\"offered\":true") && json.contains("\"state\":\"active\""), "\(json)")
            let why = try fixture.grantfs("why", offered + "/file").text
            #expect(why.contains("offered, everything fails") && why.contains(" --access read-write"), "\(why)")
            let export = try fixture.grantfs("export").orThrow().text
            #expect(export.contains("other") && !export.contains(offered), "\(export)")
            #expect(try fixture.grantfs("grant", offered).errors.contains("only offered"))
            #expect(try fixture.grantfs("grant", "--offered", offered + "/file").errors.contains("only directories can be offered"))
        }

        @Test("An offer survives an upgrade and a killed daemon", arguments: [true, false])
        func succession(_ isUpgrade: Bool) throws {
            let mount = try fixture.mount(options: "recover")
            _ = try Command.run(["stat", mount + "/data"]).orThrow()
            try fixture.replaceDaemon(at: mount, byUpgrade: isUpgrade)
            #expect(try Command.run(["stat", "-c", "%F", mount + "/data"]).trimmed == "directory")
            #expect(try Command.shell("cat '\(mount)/data/file'").errors.contains("Permission denied"))
            try fixture.grantfs("set", "data", "--access", "read-write").orThrow()
            #expect(try Command.shell("cat '\(mount)/data/file'").trimmed == "kept")
        }
    }

    @Suite(.enabled(if: Machine.hasSandboxes && Command.exists("tmux"), "bubblewrap cannot make a sandbox here, or there is no tmux"))
    struct AnOfferInAMount {
        private let fixture: MountFixture
        private let mount: String

        init() throws {
            fixture = try MountFixture()
            let offered = try fixture.source("data")
            try "kept".write(toFile: offered + "/file", atomically: false, encoding: .utf8)
            try fixture.grantfs("grant", "--offered", offered).orThrow()
            mount = try fixture.mount(options: "recover")
        }

        @Test("The person is asked about each mount of the view")
        func severalMounts() throws {
            let other = try fixture.mount(at: "second", isNew: true)
            let session = try TerminalSession("$GRANTFS run --ask terminal -- sleep 1000", in: fixture, columns: 160)
            let waiting = try Child(["sh", "-c", "until cat '\(other)/data/file'; do sleep 0.1; done 2>/dev/null"])
            try session.waitFor("[N] never?")
            try fixture.wait(until: "an answer", within: 30) {
                try session.send("y", "Enter")
                return try fixture.list("data").first { $0.state == "active" } != nil && waiting.wait(within: 1) == 0
            }
            try session.send("C-c")
            _ = try session.status()
        }

        @Test("Whichever access comes last applies, however close they are")
        func race() throws {
            for round in 0..<20 {
                let source = try fixture.source("r\(round)")
                try fixture.grantfs("grant", "--offered", source).orThrow()
                let commands = try ["read-write", "read-only"].map { access in
                    try Child([Programs.grantfs, "set", "r\(round)", "--access", access], environment: fixture.environment)
                }
                for command in commands { #expect(command.wait(within: 60) == 0) }
                let isWritable = try fixture.list("r\(round)").first?.access == "read-write"
                #expect(try Command.shell("touch '\(mount)/r\(round)/new'").status == (isWritable ? 0 : 1))
            }
        }

        @Test("Programs that wait are refused when the one who asks is gone")
        func goneAsker() throws {
            let session = try TerminalSession("$GRANTFS run --ask terminal -- cat \(mount)/data/file", in: fixture, columns: 160)
            try session.waitFor("[N] never?")
            let waiting = try Child(["sh", "-c", "cat '\(mount)/data/file' 2>&1"])
            pause(milliseconds: 300)
            try session.hangUp()
            #expect(waiting.line(within: 30)?.contains("Permission denied") == true)
            #expect(waiting.wait(within: 30) == 1)
        }

        @Test("A question survives an upgrade and a killed daemon", arguments: [true, false])
        func succession(_ isUpgrade: Bool) throws {
            let session = try TerminalSession(
                "$GRANTFS run --ask terminal -- sh -c 'cat \(mount)/data/file; echo; echo end'", in: fixture, columns: 160)
            try session.waitFor("[N] never?")
            try fixture.replaceDaemon(at: mount, byUpgrade: isUpgrade)
            try fixture.wait(until: "end", within: 60) {
                if try session.screen().contains("end\n") { return true }
                try session.send("y", "Enter")
                return false
            }
            let screen = try session.screen()
            #expect(screen.contains("kept\nend"), "\(screen)")
        }
    }
}

extension MountFixture {
    /// Has another daemon take the mount over, by an upgrade or after a kill.
    fileprivate func replaceDaemon(at mountpoint: String, byUpgrade isUpgrade: Bool) throws {
        if isUpgrade {
            try grantfs("upgrade", mountpoint).orThrow()
            return
        }
        let former = try daemon(at: mountpoint)
        try killDaemon(at: mountpoint)
        try wait(until: "another daemon serves") { try daemon(at: mountpoint) != former }
    }
}
