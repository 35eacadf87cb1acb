import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(.enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct BwrapTests {
        private let fixture: MountFixture
        private var work: String { fixture.base + "/source/work" }
        private var other: String { fixture.base + "/source/other" }
        /// bubblewrap, and a link of that name to grantfs.
        private let real: String
        private let link: String

        init() throws {
            fixture = try MountFixture()
            real = try Command.shell("command -v bwrap").orThrow().trimmed
            link = try fixture.directory("links") + "/bwrap"
            #expect(symlink(Programs.grantfs, link) == 0)
            try makeFiles()
        }

        /// Makes the directories of `sandbox-probes.sh` again.
        private func makeFiles() throws {
            try Command.shell(
                """
                rm -rf "$1"; mkdir -p "$1/work/.git/hooks" "$1/work/secret" "$1/other"; cd "$1/work"; echo content > file; echo config > .git/config
                echo key > secret/key; echo denied > denied; ln -s file link; ln -s "$1/other" out; echo other > ../other/file
                """, fixture.base + "/source"
            ).orThrow()
        }

        /// Runs it, again if a mount of another test ended while bubblewrap bound `/`, which is an error to it.
        private func bwrap(_ words: [String], by program: String? = nil) throws -> Output {
            while true {
                let output = try Command.run([program ?? link] + words, environment: fixture.environment, within: 60)
                if output.status != 1 || !output.errors.contains("Unable to apply mount flags") { return output }
                try makeFiles()
            }
        }

        /// The system for reading. `/` has the mounts of other tests.
        private let system =
            ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
            + ["--symlink", "usr/lib64", "/lib64", "--dev", "/dev", "--proc", "/proc"]

        /// What agents pass: all files for reading, a workspace for writing, and exceptions in it.
        private var agentsWords: [String] {
            ["--new-session", "--die-with-parent", "--unshare-all"] + system + ["--ro-bind", fixture.base, fixture.base]
                + ["--bind", work, work, "--ro-bind", "\(work)/.git", "\(work)/.git", "--tmpfs", "\(work)/secret"]
                + ["--ro-bind", "/dev/null", "\(work)/denied"]
        }

        private func requireNothingLeft() throws {
            let run = fixture.store + "/run"
            try fixture.wait(until: "no view of a sandbox is left") {
                try (FileManager.default.contentsOfDirectory(atPath: run)).allSatisfy { !$0.hasPrefix("run-") }
            }
            #expect(try fixture.list().isEmpty)
        }

        // MARK: the same as bubblewrap

        @Test(
            "A sandbox shows, permits and reaches the same as bubblewrap's",
            arguments: [
                // A sandbox runtime's, an agent's, and one that is made from nothing.
                "--new-session --die-with-parent --unshare-net --ro-bind / / --bind WORK WORK --ro-bind WORK/.git WORK/.git --tmpfs WORK/secret "
                    + "--ro-bind /dev/null WORK/denied --dev /dev --unshare-pid --proc /proc",
                "--as-pid-1 --new-session --die-with-parent --ro-bind / / --dev /dev --bind WORK WORK --ro-bind WORK/.git WORK/.git "
                    + "--perms 000 --tmpfs WORK/secret --remount-ro WORK/secret --ro-bind /dev/null WORK/denied --unshare-user --unshare-pid "
                    + "--unshare-ipc --unshare-net --proc /proc --cap-drop ALL --chdir WORK",
                "--unshare-all --ro-bind /usr /usr --ro-bind /etc /etc --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 "
                    + "--proc /proc --dev /dev --tmpfs /tmp --bind WORK WORK --ro-bind-try WORK/.git WORK/.git --ro-bind-try WORK/none /none "
                    + "--tmpfs WORK/secret --ro-bind OTHER OTHER --ro-bind PROBES PROBES --chdir WORK --setenv SANDBOX_PROBE set",
            ])
        func sameAnswers(_ line: String) throws {
            let probes = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path + "/../../Fixtures/sandbox-probes.sh"
            let copy = fixture.base + "/probes.sh"
            try Command.run(["cp", probes, copy]).orThrow()
            let words = line.split(separator: " ").map { word in
                [("WORK", work), ("OTHER", other), ("PROBES", copy)].reduce(String(word)) {
                    $1.0 == "OTHER" || $0 != "OTHER" ? $0.replacingOccurrences(of: $1.0, with: $1.1) : $0
                }
            }
            let command = ["--", "bash", copy, work, other]
            let expected = try bwrap(words + command, by: real).orThrow()
            try makeFiles()
            let answers = try bwrap(words + command).orThrow()
            #expect(expected.lines.count >= 40)
            #expect(answers.lines == expected.lines, "\(answers)")
            try requireNothingLeft()
        }

        @Test("Descriptors, signals and exit statuses are bubblewrap's")
        func descriptors() throws {
            let script = """
                import json, os, signal, subprocess, sys, time
                bwrap, work = sys.argv[1:]
                base = ['--ro-bind', '/usr', '/usr', '--ro-bind', '/etc', '/etc', '--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib',
                    '--symlink', 'usr/lib64', '/lib64', '--dev', '/dev', '--proc', '/proc', '--bind', work, work]
                def run(words, command, **options):
                    return subprocess.run([bwrap] + words + ['--'] + command, capture_output=True, text=True, **options)
                def pipe(text=None):
                    ends = os.pipe()
                    if text is not None: os.write(ends[1], text); os.close(ends[1])
                    return ends
                print('status', run(base, ['sh', '-c', 'exit 7']).returncode, run(base, ['sh', '-c', 'kill -9 $$']).returncode)
                print('missing', run(base, ['no-such-program']).returncode)
                print('input', subprocess.run([bwrap] + base + ['cat'], input='text', capture_output=True, text=True).stdout)
                words = pipe(b'\\0'.join(w.encode() for w in base + ['--setenv', 'A', 'b c']) + b'\\0')[0]
                print('args', run(['--args', str(words), '--chdir', work], ['sh', '-c', 'echo $A; ls'], pass_fds=[words]).stdout)
                info, status = pipe(), pipe()
                done = run(base + ['--unshare-pid', '--info-fd', str(info[1]), '--json-status-fd', str(status[1])], ['true'], pass_fds=[info[1], status[1]])
                os.close(info[1]); os.close(status[1])
                print('info', sorted(json.loads(os.read(info[0], 9999))), [sorted(json.loads(l)) for l in os.read(status[0], 9999).decode().splitlines()])
                block, sync = pipe(), pipe()
                program = subprocess.Popen([bwrap] + base + ['--unshare-pid', '--block-fd', str(block[0]), '--sync-fd', str(sync[1]), 'sh', '-c',
                    'echo begun; ls /proc/self/fd | wc -l; read x'], pass_fds=[block[0], sync[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                os.close(sync[1]); os.write(block[1], b'x')
                print('block', program.stdout.readline(), program.stdout.readline())
                program.stdin.close(); program.wait()
                print('sync', os.read(sync[0], 1))
                data = pipe(b'data')[0]
                print('data', run(base + ['--ro-bind-data', str(data), work + '/data'], ['cat', work + '/data'], pass_fds=[data]).stdout)
                held = os.open(work, os.O_PATH)
                print('bind-fd', run(base[:-3] + ['--tmpfs', '/mnt', '--bind-fd', str(held), '/mnt'], ['sh', '-c', 'ls /mnt; ls /proc/self/fd | wc -l'], pass_fds=[held]).stdout)
                for number in (signal.SIGTERM, signal.SIGINT):
                    program = subprocess.Popen([bwrap] + base + ['sh', '-c', 'echo ready; read x'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                    program.stdout.readline()
                    program.send_signal(number)
                    print('signal', program.wait())
                print('environment', [l.split('=')[0] for l in sorted(run(base, ['env']).stdout.splitlines()) if not l.startswith('_=')])
                print('texts', run(['--version'], []).stdout, len(run(['--help'], []).stdout.splitlines()))
                """
            let path = fixture.base + "/descriptors.py"
            try script.write(toFile: path, atomically: false, encoding: .utf8)
            let outputs = try [real, link].map { program in
                try makeFiles()
                return try Command.run(["python3", path, program, work], environment: fixture.environment, within: 120).orThrow()
            }
            #expect(outputs[0].lines.count >= 12)
            #expect(outputs[1].lines == outputs[0].lines)
            try requireNothingLeft()
        }

        // MARK: live changes

        @Test("A revocation ends what a program reached by any bind of a directory")
        func revocation() throws {
            let script = """
                exec 3< "$1/file"; cd "$1/.git"; echo ready
                while read -r line; do
                    for file in "$1/file" /proc/self/fd/3 config "$1/.git/config" /mnt/elsewhere/file "$2/file"; do
                        if cat "$file" >/dev/null 2>&1; then printf 'yes '; else printf 'no '; fi
                    done
                    ls "$3" > "$2/seen" 2>&1 || true
                    if echo more 2>/dev/null > "$1/new"; then echo writes; else echo reads; fi
                done
                """
            let words = agentsWords + ["--bind", other, other, "--tmpfs", "/mnt", "--ro-bind", work, "/mnt/elsewhere"]
            let program = try Child(
                [link] + words + ["--", "bash", "-c", script, "bash", work, other, "\(fixture.store)/run"], environment: fixture.environment
            )
            try program.expect("ready")
            program.send("look")
            try program.expect("yes yes yes yes yes yes writes")
            let grants = try fixture.list()
            #expect(grants.map(\.name).sorted() == ["other", "work"])
            // The daemon logs the command once the mount answers, and bubblewrap starts before that.
            try fixture.wait(until: "the list has the command") { try fixture.grantfs("list").text.contains("bash -c exec 3<") }

            try fixture.grantfs("set", "work", "--read-only").orThrow()
            program.send("look")
            try program.expect("yes yes yes yes yes yes reads")
            let confirmations = try fixture.revoke("work")
            #expect(confirmations.count == 1)
            program.send("look")
            try program.expect("no no no no no yes reads")

            let added = try fixture.source("added")
            let view = try #require(grants.first?.view)
            try fixture.grantfs("grant", "--view", view, added).orThrow()
            try fixture.wait(until: "the sandbox shows the directory") {
                program.send("look")
                try program.expect("no no no no no yes reads")
                return try Command.run(["ls", "\(fixture.store)/run/\(view)/added"]).lines == ["added"]
            }
            // The program finds it at the same path, and nothing else of the mount.
            #expect(try Command.run(["cat", other + "/seen"]).lines == [view])
            program.closeInput()
            #expect(program.wait() == 0)
            try requireNothingLeft()
        }

        @Test("The view ends with bubblewrap, however that ends")
        func ends() throws {
            for command in [["true"], ["no-such-program"], ["sh", "-c", "kill -9 $$"]] {
                _ = try bwrap(agentsWords + ["--"] + command)
                try requireNothingLeft()
            }
            let program = try Child(
                [link] + agentsWords + ["--", "sh", "-c", "echo ready; read x"], environment: fixture.environment)
            try program.expect("ready")
            // Another command leaves it alone: it belongs to a process that runs.
            _ = try bwrap(agentsWords + ["--", "true"])
            try fixture.wait(until: "only the other view is left") { try fixture.list().map(\.name) == ["work"] }
            program.kill()
            try requireNothingLeft()
            // Refused by bubblewrap itself.
            #expect(try bwrap(agentsWords + ["--chdir", "/none", "--", "true"]).status == 1)
            try requireNothingLeft()
        }

        @Test("A view whose daemon has died is cleaned up once bubblewrap has ended")
        func deadDaemon() throws {
            let program = try Child(
                [link] + agentsWords + ["--", "sh", "-c", "echo ready; read x"], environment: fixture.environment)
            try program.expect("ready")
            let view = try #require(try fixture.list().first?.view)
            try fixture.killDaemon(at: "\(fixture.store)/run/\(view)")
            program.kill()
            #expect(program.wait() != nil)
            _ = try bwrap(agentsWords + ["--", "true"])
            try requireNothingLeft()
        }

        // MARK: protection

        @Test("A bind in a granted directory does not follow a link that takes its place", .enabled(if: geteuid() == 0, "needs root"))
        func race() throws {
            let stops = try StopPoints(fixture)
            stops.arm("binding")
            let program = try Child(
                [Programs.grantfsWithFaults, "bwrap"] + agentsWords + ["--", "cat", "\(work)/.git/file"], environment: fixture.environment,
                separateErrors: true)
            try stops.awaitStop("binding")
            try Command.shell("mv '\(work)/.git' '\(work)/old'; ln -s '\(other)' '\(work)/.git'").orThrow()
            stops.goOn("binding")
            let output = try #require(program.collected(within: 30))
            #expect(output.output.isEmpty && output.errors.contains("can't find source path"), "\(output)")
            #expect(program.wait() != 0)
            try requireNothingLeft()
        }

        @Test("What the command line protects or hides in a directory stays so")
        func covers() throws {
            let script = """
                echo ready
                while read -r line; do
                    cat "$1/secret/key" "$1/denied" "$1/file" 2>/dev/null | tr '\\n' ' '
                    if echo more 2>/dev/null >> "$1/.git/config"; then echo writes; else echo reads; fi
                done
                """
            let program = try Child([link] + agentsWords + ["--", "bash", "-c", script, "bash", work], environment: fixture.environment)
            try program.expect("ready")
            program.send("look")
            try program.expect("content reads")
            // The kernel forgets all names, and with them each mount in the mount.
            try fixture.grantfs("set", "work", "--hide", "file").orThrow()
            program.send("look")
            try program.expect("reads")
            #expect(try fixture.grantfs("list", "work", "--json").text.contains("/secret"))
            for words in [["--no-rules"], ["--hide", ""], ["--hide", "!/secret"]] {
                let output = try fixture.grantfs(["set", "work"] + words)
                #expect(output.status == 2, "\(words): \(output)")
            }
            try fixture.grantfs("set", "work", "--read-only").orThrow()
            try fixture.grantfs("set", "work", "--access", "rw").orThrow()
            program.send("look")
            try program.expect("reads")
            program.closeInput()
            #expect(program.wait() == 0)
        }

        @Test("A mount that hides contents of a granted directory by others is refused")
        func covering() throws {
            for words in [
                ["--ro-bind", other + "/file", work + "/file"], ["--bind", other, work + "/secret"], ["--bind", other, work + "/out"],
                ["--tmpfs", work + "/secret", "--bind", other, work + "/secret/other"], ["--tmpfs", work + "/out"],
            ] {
                let output = try bwrap(["--ro-bind", "/", "/", "--bind", work, work] + words + ["--", "true"])
                #expect(output.status == 1 && output.errors.contains("cannot be covered"), "\(output)")
            }
            try Command.shell("mkdir '\(work)/empty'").orThrow()
            let output = try bwrap([
                "--ro-bind", "/", "/", "--bind", work, work, "--bind", other, work + "/empty", "--", "ls", work + "/empty",
            ])
            #expect(output.lines == ["file"], "\(output)")
            // One without contents needs no rule: it is a place to write to, or one where nothing can be made.
            let script = "cd '\(work)'; for at in empty missing none; do echo x 2>/dev/null > $at/x; cat $at/x 2>/dev/null || echo no; done"
            let scratch = try bwrap(
                ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", work, work, "--tmpfs", work + "/empty", "--tmpfs", work + "/missing"]
                    + ["--perms", "555", "--tmpfs", work + "/none", "--remount-ro", work + "/none", "--", "sh", "-c", script])
            #expect(scratch.lines == ["x", "x", "no"], "\(scratch)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: work + "/empty").isEmpty)
            let program = try Child(
                [link] + system + ["--bind", work, work, "--bind", work + "/.git", work + "/.git", "--remount-ro", work + "/.git"]
                    + ["--", "sh", "-c", "echo ready; read x"], environment: fixture.environment)
            try program.expect("ready")
            #expect(try fixture.grantfs("list", "work", "--json").text.contains("\"protect\":[\"/.git\"]"))
            program.kill()
            try requireNothingLeft()
            // The last of several options at a place counts.
            for (words, rule) in [
                (["--bind", work + "/.git", work + "/.git", "--ro-bind", work + "/.git", work + "/.git"], "\"protect\":[\"/.git\"]"),
                (["--bind", work + "/secret", work + "/secret", "--tmpfs", work + "/secret"], "\"hide\":[\"/secret\"]"),
                (
                    ["--tmpfs", "/mnt", "--bind", work, "/mnt/q", "--symlink", "q", "/mnt/l", "--tmpfs", "/mnt/l/secret"],
                    "\"hide\":[\"/secret\"]"
                ),
            ] {
                let program = try Child(
                    [link] + system + ["--bind", work, work] + words + ["--", "sh", "-c", "echo ready; read x"],
                    environment: fixture.environment)
                try program.expect("ready")
                #expect(try fixture.grantfs("list", "work", "--json").text.contains(rule), "\(words)")
                program.kill()
                try requireNothingLeft()
            }
            #expect(
                try bwrap(system + ["--bind", work, work, "--proc", work + "/secret", "--", "true"]).errors.contains("cannot be covered"))
            // A number is not a descriptor unless the option takes one.
            let bound = try Command.run(
                ["sh", "-c", "ulimit -n 1024; exec \"$@\"", "sh", link] + system
                    + ["--bind", work, work, "--setenv", "PORT", "3128", "--size", "65536", "--tmpfs", "/mnt", "--", "printenv", "PORT"],
                environment: fixture.environment, within: 60)
            #expect(bound.lines == ["3128"], "\(bound)")
            // Other spellings of a place, and a link that leads to it.
            #expect(symlink("work", fixture.base + "/source/alias") == 0)
            for place in [String(work.dropFirst()), "/" + work + "/./", fixture.base + "/source/alias"] {
                let hidden = try bwrap(
                    system + ["--ro-bind", fixture.base, fixture.base, "--bind", work, work, "--tmpfs", place + "/secret", "--"]
                        + ["cat", "/proc/self/mountinfo", "\(work)/file", "\(work)/secret/key"])
                #expect(hidden.lines.last == "content" && !hidden.text.contains("work/secret"), "\(place): \(hidden)")
            }
            // A root of its own.
            try Command.shell(
                "cd '\(fixture.base)/source'; mkdir -p root/usr root/etc root/tmp root/proc root/dev; echo x > root/etc/hostname"
            ).orThrow()
            let root = fixture.base + "/source/root"
            let own = try bwrap(
                ["--bind", root, "/", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
                    + ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
                    + ["--ro-bind", "/etc/hostname", "/etc/hostname", "--", "sh", "-c", "echo x > /tmp/x; cat /tmp/x; stat -f -c %T /"])
            #expect(own.lines.first == "x" && own.lines.last?.contains("fuse") == true, "\(own)")
            // A directory for writing in one for reading.
            let inner = try bwrap(
                ["--ro-bind", "/", "/", "--bind", work, work, "--ro-bind", work + "/.git", work + "/.git"]
                    + ["--bind", work + "/.git/hooks", work + "/.git/hooks", "--"]
                    + ["sh", "-c", "cd '\(work)/.git'; echo x > hooks/new && echo wrote; echo x 2>/dev/null > new || echo refused"])
            #expect(inner.lines == ["wrote", "refused"], "\(inner)")
            try requireNothingLeft()
        }

        @Test("A source that leads to a person's files by way of the system's is a grant")
        func indirect() throws {
            let end = ["--", "stat", "-f", "-c", "%T", "/x"]
            for source in ["/proc/self/cwd/source/work", "/proc/self/root\(work)"] {
                let output = try Command.run(
                    ["env", "-C", fixture.base, link] + system + ["--bind", source, "/x"] + end, environment: fixture.environment,
                    within: 60
                )
                #expect(output.text.contains("fuse"), "\(source): \(output)")
            }
            // Owner and mode are a program's choice.
            #expect(chmod(fixture.base, 0o1755) == 0)
            let output = try bwrap(system + ["--bind", work, "/x"] + end)
            #expect(output.text.contains("fuse"), "\(output)")
        }

        @Test("A link to the system's files that leads elsewhere by then is not followed", .enabled(if: geteuid() == 0, "needs root"))
        func replacedLink() throws {
            #expect(symlink("/usr/share", work + "/place") == 0)
            let stops = try StopPoints(fixture)
            stops.arm("binding")
            let program = try Child(
                [Programs.grantfsWithFaults, "bwrap"] + system + ["--ro-bind", "\(work)/place", "/mnt", "--", "ls", "/mnt"],
                environment: fixture.environment, separateErrors: true)
            try stops.awaitStop("binding")
            try Command.shell("ln -sfn '\(other)' '\(work)/place'").orThrow()
            stops.goOn("binding")
            let output = try #require(program.collected(within: 30))
            #expect(String(decoding: output.output, as: UTF8.self).contains("doc\n"), "\(output)")
        }

        @Test("The store is not shown, and no directory with it is bound for writing", .enabled(if: geteuid() == 0, "needs root"))
        func store() throws {
            _ = try fixture.grant(other, name: "other", view: "standing")
            for words in [
                ["--bind", "/", "/"], ["--dev-bind", "/", "/"], ["--bind-try", "/tmp", "/tmp"], ["--bind", fixture.base, "/mnt"],
                ["--bind", fixture.store, "/mnt"], ["--ro-bind", "\(fixture.store)/run", "/mnt"], ["--ro-bind", fixture.store, "/mnt"],
            ] {
                let output = try bwrap(["--ro-bind", "/", "/", "--bind", work, work] + words + ["--", "true"])
                #expect(output.status == 1 && output.errors.contains("store"), "\(output)")
            }
            let script = "find \"$1\" | wc -l; ls -R \"$1\"/run/*; if : 2>/dev/null > \"$1/x\"; then echo writable; fi"
            for place in ["", "/mnt"] {
                let words =
                    ["--ro-bind", "/", "/", "--proc", "/proc"] + (place.isEmpty ? [] : ["--tmpfs", "/mnt", "--ro-bind", "/", "/mnt"])
                let output = try bwrap(words + ["--bind", work, work, "--", "bash", "-c", script, "bash", place + fixture.store])
                #expect(output.lines.first == (place.isEmpty ? "4" : "1"), "\(output)")
                #expect(!output.text.contains("work") && !output.text.contains("writable"), "\(output)")
            }
            // Without a grant of its own as well, and where another mount shows the store.
            let alias = try fixture.directory("alias")
            try Command.run(["mount", "--bind", fixture.store, alias]).orThrow()
            defer { umount2(alias, Int32(MNT_DETACH)) }
            for bound in [[], ["--bind", work, work]] {
                let output = try bwrap(
                    ["--ro-bind", "/", "/"] + bound + ["--", "sh", "-c", "cat '\(fixture.store)/key' '\(alias)/key' | wc -c"])
                #expect(output.lines == ["0"], "\(output)")
            }
            try fixture.wait(until: "only the standing grant is left") { try fixture.list().map(\.view) == ["standing"] }
        }

        @Test("A program in a sandbox can use bubblewrap itself, and gets no grants")
        func nested() throws {
            let inner = [link, "--ro-bind", "/", "/", "--dev", "/dev", "--bind", work, work, "--", "cat", "\(work)/file"]
            let all = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--bind", work, work]
            let output = try bwrap(all + ["--"] + inner)
            #expect(output.lines == ["content"], "\(output)")
            // Nor does grantfs take itself for bubblewrap, or a script that starts it.
            let script = try fixture.directory("scripts") + "/bwrap"
            try Command.writeProgram("#!/bin/sh\nexec \(Programs.grantfs) bwrap --link \"$@\"", to: script)
            let alone = try Command.run(
                [script] + agentsWords + ["--", "true"],
                environment: fixture.environment.merging(["PATH": "\(fixture.base)/scripts:\(fixture.base)/links"]) { $1 })
            #expect(alone.status == 1 && alone.errors.contains("install the package bubblewrap"), "\(alone)")
            let off = try bwrap(["--no-grants"] + agentsWords + ["--", "stat", "-f", "-c", "%T", work])
            #expect(off.status == 0 && !off.text.contains("fuse"), "\(off)")
        }

        @Test("Files that are bound are grants, also where a bubblewrap cannot bind descriptors")
        func files() throws {
            let old = try fixture.directory("old") + "/bwrap"
            try Command.writeProgram(
                "#!/bin/sh\nif [ \"$1\" = --help ]; then \(real) --help | sed '/bind-fd/d'; else exec \(real) \"$@\"; fi", to: old)
            let path = ["PATH": fixture.base + "/old:/usr/bin:/bin"]
            let script =
                "cat '\(work)/file' '\(work)/.git/config'; echo more >> '\(work)/file'; grep -c '/bound/.*fuse.grantfs' /proc/self/mountinfo"
            let words = ["--ro-bind", "/", "/", "--proc", "/proc", "--bind", "\(work)/file", "\(work)/file"]
            for (bound, count) in [([], "1"), (["--ro-bind", "\(work)/.git/config", "\(work)/.git/config"], "2")] {
                let output = try bwrap(words + bound + ["--", "sh", "-c", script])
                #expect(output.lines.first == "content" && output.lines.last == count, "\(output)")
            }
            let output = try Command.run(
                [link] + agentsWords + ["--", "sh", "-c", script], environment: fixture.environment.merging(path) { $1 }, within: 60)
            #expect(output.lines.last == "2", "\(output)")
            #expect(try String(contentsOfFile: work + "/file", encoding: .utf8) == "content\nmore\nmore\nmore\n")
            try requireNothingLeft()
        }

        @Test(
            "A command line that cannot be read grants nothing and starts nothing",
            arguments: [
                (["--frobnicate", "x"], "unknown option"), (["--bind"], "needs 2 values"), (["--args", "97"], "not an open descriptor"),
                (["--args", "x"], "not an open descriptor"), (["--bind", "WORK/none", "/mnt"], "can't find source path"),
                (["--bind-fd", "97", "/mnt"], "not an open descriptor"), (["--overlay-src", "WORK", "--tmp-overlay", "/mnt"], "overlay"),
                (["-x"], "unknown option"),
            ])
        func badInput(_ words: [String], _ message: String) throws {
            let output = try bwrap(
                ["--ro-bind", "/", "/", "--bind", work, work] + words.map { $0.replacingOccurrences(of: "WORK", with: work) }
                    + (message.hasPrefix("needs") ? [] : ["--", "sh", "-c", "echo ran"]))
            #expect([1, 2].contains(output.status) && output.text.isEmpty && output.errors.contains(message), "\(output)")
            #expect(!FileManager.default.fileExists(atPath: fixture.store))
        }

        @Test(
            "A user without rights has a sandbox with grants",
            .enabled(if: Machine.usersCanMount, Comment(rawValue: Machine.usersCannotMount)))
        func plainUser() throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture(owner: user)
            let work = try fixture.source("work")
            let program = Programs.grantfs(for: user)
            let words = system + ["--unshare-all", "--bind", work, work, "--"]
            let output = try Command.run(
                [program, "bwrap"] + words + ["sh", "-c", "echo x > '\(work)/new'; stat -f -c %T '\(work)'; ls '\(work)'"], as: user,
                environment: fixture.environment, within: 60)
            #expect(output.lines.last == "new" && output.lines.first?.contains("fuse") == true, "\(output)")
        }
    }
}
