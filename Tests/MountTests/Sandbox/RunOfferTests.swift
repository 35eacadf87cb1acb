import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite(.enabled(if: Machine.hasSandboxes && Command.exists("tmux"), "bubblewrap cannot make a sandbox here, or there is no tmux"))
    struct RunOffers {
        private let fixture: MountFixture
        private let work: String
        private let offered: String

        init() throws {
            fixture = try MountFixture()
            work = try fixture.source("work")
            offered = try fixture.source("data")
            try "kept".write(toFile: offered + "/file", atomically: false, encoding: .utf8)
        }

        /// A sandbox in a terminal, with a script of sh.
        private func start(_ script: String, with program: String = Programs.grantfs, and other: String? = nil) throws -> TerminalSession {
            try script.write(toFile: work + "/script", atomically: false, encoding: .utf8)
            return try TerminalSession(
                "'\(program)' run --grant '\(work)' --offer '\(offered)' \(other.map { "--offer '\($0)'" } ?? "") -- sh '\(work)/script'",
                in: fixture, columns: 160)
        }

        /// Answers until the program says something. Keys at the beginning of a question are meant for the program.
        private func answer(_ key: String, _ session: TerminalSession, until text: String) throws {
            try session.waitFor("[N] never?")
            try fixture.wait(until: text, within: 60) {
                if try session.screen().contains(text) { return true }
                try session.send(key, "Enter")
                return false
            }
        }

        private func grant(_ name: String = "data") throws -> GrantDocument {
            try #require(try fixture.list("--all").first { $0.name == name })
        }

        @Test("An offered directory is a name, and its first use waits for a person")
        func session() throws {
            let session = try start(
                """
                ls -l '\(fixture.base)/source' | grep -c data; stat -c %F '\(offered)'; cd '\(offered)' && echo entered
                (sleep 0.1; echo other work >'\(work)/other') &
                cat '\(offered)/file' && echo; echo new >'\(offered)/new'; cat /grants/data/new; ls '\(offered)'; echo end
                """)
            try session.waitFor("may it read and change this directory and all below it?")
            let screen = try session.screen()
            #expect(screen.contains("1\ndirectory\nentered\n") && screen.contains("process ") && screen.contains("cat"), "\(screen)")
            #expect(screen.contains("    BASE/source/data\n") && !screen.contains("kept"), "\(screen)")
            // Other grants are not interrupted.
            try fixture.wait(until: "other work") { FileManager.default.fileExists(atPath: work + "/other") }
            #expect(try fixture.grantfs("list").orThrow().text.contains("offered"))
            try answer("s", session, until: "end")
            let end = try session.screen()
            #expect(end.contains("kept\nnew\nfile  new\nend\n"), "\(end)")
            #expect(try session.status() == 0)
        }

        @Test("Never and an empty answer refuse, and are not asked again", arguments: ["n", ""])
        func never(_ key: String) throws {
            let session = try start(
                "cat '\(offered)/file'; ls '\(offered)'; echo x >'\(offered)/file'; cat /grants/data/file; echo end")
            try answer(key, session, until: "end")
            let screen = try session.screen()
            #expect(screen.components(separatedBy: "Permission denied").count == 5, "\(screen)")
            #expect(screen.components(separatedBy: "a program uses a directory").count == 2, "\(screen)")
        }

        @Test("Read-only and 30 minutes limit the grant")
        func limited() throws {
            let one = try start("cat '\(offered)/file'; echo x >'\(offered)/file' || echo refused; sleep 1000")
            try answer("r", one, until: "refused")
            #expect(try one.screen().contains("Read-only file system"))
            #expect(try grant().access == "read-only")
            try one.send("C-c")
            _ = try one.status()
            let other = try start("cat '\(offered)/file'; echo; echo read; sleep 1000")
            try answer("m", other, until: "read\n")
            #expect(try grant().expires != nil)
            try other.send("C-c")
            _ = try other.status()
        }

        @Test("Once lasts as long as the process that was first")
        func once() throws {
            let session = try start(
                """
                python3 -c "print(open('\(offered)/file').read(), open('/grants/data/file').read()); print('printed'); input()"
                until ! cat '\(offered)/file' >/tmp/seen 2>/tmp/why; do sleep 0.1; done; cat /tmp/why; echo end
                """)
            try session.waitFor("[N] never?")
            try answer("o", session, until: "printed")
            #expect(try grant().expires != nil, "a day at most, whatever becomes of the process")
            try session.send("x", "Enter")
            try session.waitFor("end")
            #expect(try session.screen().contains("Permission denied"))
        }

        @Test("`set --access` and `revoke` answer as well, and the question is withdrawn", arguments: [true, false])
        func elsewhere(_ isAllowed: Bool) throws {
            let session = try start("cat '\(offered)/file'; echo; echo end")
            try session.waitFor("[N] never?")
            let view = try grant().view
            if isAllowed {
                try fixture.grantfs("set", "data", "--view", view, "--access", "read-only").orThrow()
            } else {
                _ = try fixture.revoke("data", "--view", view)
            }
            try session.waitFor("end")
            let screen = try session.screen()
            #expect(screen.contains("the question is withdrawn"), "\(screen)")
            #expect(screen.contains(isAllowed ? "kept" : "Permission denied"), "\(screen)")
        }

        @Test("The program's output waits during a question")
        func imitation() throws {
            let session = try start(
                """
                (cat '\(offered)/file'; echo; echo end) &
                i=0; while [ $i -lt 300 ]; do printf '\\033[2J\\033[Hgrantfs: allow everything? '; sleep 0.05; i=$((i+1)); done
                """)
            try session.waitFor("[N] never?")
            for _ in 0..<5 {
                let screen = try session.screen()
                #expect(screen.contains("may it read and change") && screen.trimmingCharacters(in: .newlines).hasSuffix("[N] never?"))
                pause(milliseconds: 50)
            }
        }

        @Test("A program cannot hide a question", arguments: [#"\033[8m"#, #"\033]0;"#, #"\033[1;3r\033[1;1H"#, #"\033(0"#, #"\033P"#])
        func hiding(_ sequence: String) throws {
            let session = try start("printf 'first\\n\(sequence)'; cat '\(offered)/file'; printf '\\033\\\\'; echo; echo end")
            try session.waitFor("[N] never?")
            let screen = try session.screen()
            #expect(screen.contains("grantfs: may it read and change this directory"), "\(screen)")
            try answer("n", session, until: "end")
        }

        @Test("A program cannot hide the question of `--review`")
        func review() throws {
            try "echo x >'\(work)/new'; printf 'changed\\n\\033]0;'".write(toFile: work + "/script", atomically: false, encoding: .utf8)
            let session = try TerminalSession("$GRANTFS run --review --grant '\(work)' -- sh '\(work)/script'", in: fixture, columns: 160)
            try session.waitFor("(k)eep")
            try session.send("k", "Enter")
            #expect(try session.status() == 0)
        }

        @Test("An interrupted program stops waiting, and the answer counts for the next one")
        func interruption() throws {
            let session = try start(
                """
                timeout 1 cat '\(offered)/file'; echo status $?; cat '\(offered)/file'; echo; echo end
                """)
            try session.waitFor("[N] never?")
            pause(milliseconds: 1_500)
            try answer("s", session, until: "end")
            let screen = try session.screen()
            #expect(screen.contains("status 124") && screen.contains("kept\nend"), "\(screen)")
        }

        @Test("Keys that were typed for the program are no answer")
        func typedAhead() throws {
            fixture.switches["GRANTFS_TEST_READING_SECONDS"] = "3600"
            let session = try start("cat '\(offered)/file' & sleep 2", with: Programs.grantfsWithFaults)
            try session.waitFor("[N] never?")
            try session.send("s", "Enter", "s", "Enter")
            #expect(try session.status() == 0)
            let screen = try session.screen()
            #expect(screen.contains("the question is withdrawn") && !screen.contains("kept"), "\(screen)")
        }

        @Test("A question without an answer is not asked again, and `set` answers it later")
        func late() throws {
            fixture.switches["GRANTFS_TEST_ANSWER_SECONDS"] = "1"
            let session = try start(
                """
                cat '\(offered)/file'; ls '\(offered)'; echo refused
                until cat '\(offered)/file' 2>/dev/null; do sleep 0.1; done; echo; echo end
                """, with: Programs.grantfsWithFaults)
            try session.waitFor("refused")
            let screen = try session.screen()
            #expect(screen.components(separatedBy: "a program uses a directory").count == 2, "\(screen)")
            #expect(screen.components(separatedBy: "Permission denied").count == 3, "\(screen)")
            try fixture.grantfs("set", "data", "--view", try grant().view, "--access", "read-only").orThrow()
            try session.waitFor("kept\nend")
        }

        @Test("The requests that wait are bounded, and are served after the answer")
        func many() throws {
            try """
            import os, threading
            answers = []
            def use():
                try: answers.append(len(os.listdir('\(offered)')))
                except PermissionError: answers.append('refused')
            threads = [threading.Thread(target=use) for _ in range(1300)]
            for thread in threads: thread.start()
            while len(answers) < 200: pass
            print(set(answers), 'at once', flush=True)
            for thread in threads: thread.join()
            print(answers.count(1), 'answers', flush=True)
            """.write(toFile: work + "/many.py", atomically: false, encoding: .utf8)
            let session = try start("python3 '\(work)/many.py'")
            try session.waitFor("[N] never?")
            try answer("s", session, until: "answers")
            let screen = try session.screen()
            #expect(screen.contains("{'refused'} at once"), "\(screen)")
            let count = screen.split(separator: "\n").last { $0.hasSuffix(" answers") }.flatMap { Int($0.dropLast(8)) }
            #expect((900...1100).contains(try #require(count)), "\(screen)")
        }

        @Test("Requests that wait in one offer do not keep another one from its question")
        func crowd() throws {
            let other = try fixture.source("other")
            try """
            import os, threading
            answers = []
            def use():
                try: answers.append(len(os.listdir('\(offered)')))
                except PermissionError: answers.append('refused')
            for _ in range(1300): threading.Thread(target=use, daemon=True).start()
            while len(answers) < 200: pass
            open('\(work)/full', 'w').close()
            print('listed', os.listdir('\(other)'), flush=True)
            """.write(toFile: work + "/crowd.py", atomically: false, encoding: .utf8)
            let session = try start("python3 '\(work)/crowd.py'", and: other)
            try session.waitFor("[N] never?")
            try fixture.wait(until: "as many wait as may") { FileManager.default.fileExists(atPath: work + "/full") }
            try answer("s", session, until: "BASE/source/other")
            try answer("s", session, until: "listed []")
        }

        @Test(
            "A signal that a program handles does not end its waiting, and a deadly one does",
            .enabled(if: Command.exists("perl"), "needs perl"))
        func signals() throws {
            let perl = #"perl -e '$SIG{WINCH} = sub {}; open(F, "<", $ARGV[0]) or die "failed: $!"; print <F>'"#
            let session = try start(
                """
                timeout -s KILL 3 \(perl) '\(offered)/file'; echo status $?
                (timeout --preserve-status -s QUIT 1 cat '\(offered)/file'; echo $? >'\(work)/quit') 2>/dev/null
                \(perl) '\(offered)/file'; echo; echo end
                """)
            try session.waitFor("[N] never?")
            try session.resize(columns: 150, rows: 30)
            // The second program is signalled as well.
            try fixture.wait(until: "both were killed") { FileManager.default.fileExists(atPath: work + "/quit") }
            pause(milliseconds: 500)
            try session.resize(columns: 140, rows: 30)
            try answer("s", session, until: "end")
            let screen = try session.screen()
            #expect(try String(contentsOfFile: work + "/quit", encoding: .utf8) == "131\n")
            #expect(screen.contains("status 137") && screen.contains("kept\nend") && !screen.contains("failed"), "\(screen)")
        }

        @Test("A change of the grant during a question leads to the question again")
        func changed() throws {
            let session = try start("cat '\(offered)/file'; echo; echo end")
            try session.waitFor("[N] never?")
            try fixture.grantfs("set", "data", "--view", try grant().view, "--hide", "*.key").orThrow()
            try answer("s", session, until: "end")
            let screen = try session.screen()
            #expect(screen.contains("is not carried out") && screen.contains("kept\nend"), "\(screen)")
        }

        @Test("A question on the terminal needs an output that waits", arguments: ["| cat", "2>&1 >/dev/null | cat", "2> >(cat)"])
        func pipe(_ output: String) throws {
            let session = try TerminalSession(
                "bash -c \"'\(Programs.grantfs)' run --offer '\(offered)' -- true \(output); sleep 1\"", in: fixture, columns: 200)
            try session.waitFor("it goes to a pipe or a socket")
        }

        @Test("The profile of a session with questions makes the next one ask nothing")
        func learnt() throws {
            let home = try fixture.directory("home")
            let (project, allowed, refused, tool) = (home + "/src/project", home + "/data", home + "/mail", home + "/.config/tool")
            for directory in [project, allowed, refused, tool, home + "/.config/grantfs/profiles"] {
                try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
                try "kept in \(directory)".write(toFile: directory + "/file", atomically: false, encoding: .utf8)
            }
            let script = """
                cd '\(project)'; exec 3<file; echo working
                cat '\(allowed)/file' && echo && echo x >'\(allowed)/new'; cat '\(refused)/file'; cat '\(tool)/file'
                """
            let end = "until ! head -c 1 file >/dev/null 2>&1; do sleep 0.1; done; cat <&3; echo end"
            try (script + "; " + end).write(toFile: project + "/script", atomically: false, encoding: .utf8)
            fixture.switches = ["HOME": home, "XDG_CONFIG_HOME": ""]
            let session = try TerminalSession(
                "$GRANTFS run --learn --grant '\(project)' --offer '\(allowed)' --offer '\(refused)' -- sh '\(project)/script'",
                in: fixture, columns: 200, rows: 60)
            try answer("s", session, until: "kept in BASE/home/data")
            try session.waitFor("BASE/home/mail\n")
            try answer("n", session, until: "mail/file: Permission denied")
            let view = try grant("project").view
            _ = try fixture.revoke("project", "--view", view)
            try session.waitFor("end")
            #expect(try session.status() == 0)
            let screen = try session.screen()
            #expect(!screen.contains("kept in BASE/home/mail") && !screen.contains("kept in BASE/home/src"), "\(screen)")
            #expect(screen.contains("grantfs why \(view)"), "\(screen)")
            let why = try fixture.grantfs("why").orThrow().text
            #expect(why.contains("~/.config/tool") && why.contains("mail"), "\(why)")
            let profile = try fixture.grantfs("profile").orThrow().text
            #expect(profile.contains("path = \"~/data\"\naccess = \"read-write\""), "\(profile)")
            #expect(profile.contains("path = \"~/.config/tool\""), "\(profile)")
            #expect(profile.contains("# not proposed: ~/mail"), "\(profile)")
            // The person allows the rest as well.
            let proposed = "(?m)^# (\\[\\[|path|access|optional|links)"
            let all = profile.replacingOccurrences(of: proposed, with: "$1", options: .regularExpression)
            try all.write(toFile: home + "/.config/grantfs/profiles/learnt", atomically: false, encoding: .utf8)
            try (script + "; echo end").write(toFile: project + "/script", atomically: false, encoding: .utf8)
            let next = try TerminalSession(
                "$GRANTFS run --learn --tool learnt --grant '\(project)' -- sh '\(project)/script'", in: fixture, columns: 200, rows: 60)
            #expect(try next.status() == 0)
            let second = try next.screen()
            #expect(second.contains("kept in BASE/home/data") && second.contains("kept in BASE/home/.config/tool"), "\(second)")
            #expect(!second.contains("offered to it"), "\(second)")
        }

        @Test("A program that ends during a question leaves nothing")
        func end() throws {
            let session = try start("cat '\(offered)/file' & sleep 1; exit 5")
            try session.waitFor("[N] never?")
            #expect(try session.status() == 5)
            #expect(try session.screen().contains("the question is withdrawn"))
            #expect(try fixture.list("--all").isEmpty)
        }

        @Test("A terminal that goes away during a question grants nothing, and leaves nothing", arguments: [false, true])
        func hangUp(_ isIgnored: Bool) throws {
            let session = try start(
                """
                \(isIgnored ? "trap '' HUP" : "true")
                cat '\(offered)/file' >'\(work)/read' 2>'\(work)/errors'
                echo ended >>'\(work)/errors'
                """)
            try session.waitFor("[N] never?")
            try session.hangUp()
            try fixture.wait(until: "nothing is left", within: 60) { try fixture.list("--all").isEmpty }
            #expect(try fixture.grantfs("status", "--json").orThrow().text.contains(#""mounts":[]"#))
            #expect(try String(contentsOfFile: work + "/read", encoding: .utf8).isEmpty)
            if isIgnored {
                let errors = try String(contentsOfFile: work + "/errors", encoding: .utf8)
                #expect(errors.contains("Permission denied") && errors.hasSuffix("ended\n"), "\(errors)")
            }
        }

        @Test("Wrong offers are refused before anything starts")
        func wrong() throws {
            let file = offered + "/file"
            let inner = try fixture.source("data/inner")
            let wanted: [([String], String)] = [
                (["--offer", file, "--ask", "desktop"], "only directories can be offered"),
                (["--grant", work, "--offer", offered], "there is no terminal"),
                (["--grant", offered, "--offer", inner, "--ask", "desktop"], "one lies in the other"),
                (["--offer", offered, "--grant", inner, "--ask", "desktop"], "one lies in the other"),
                (["--grant", work, "--ask", "desktop"], "--ask is for directories of --offer"),
                (["--grant", work, "--offer", offered, "--ask", "desktop", "--snapshot"], "do not copy offered directories"),
                (["--offer", offered, "--view", "other", "--ask", "desktop"], "make a view of their own"),
                (["--offer", offered + "/missing", "--ask", "desktop"], "there is no such directory"),
            ]
            for (options, text) in wanted {
                let command = ["setsid", "--wait", Programs.grantfs, "run"] + options + ["--", "true"]
                let output = try Command.run(command, environment: fixture.environment, within: 60)
                #expect(output.status != 0 && output.errors.contains(text), "\(options): \(output)")
            }
            #expect(try fixture.list("--all").isEmpty)
        }
    }
}
