import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    @Suite(.enabled(if: Machine.hasSandboxes, "bubblewrap cannot make a sandbox here"))
    struct BwrapTests {
        let fixture: MountFixture
        var work: String { fixture.base + "/source/work" }
        var other: String { fixture.base + "/source/other" }
        /// bubblewrap, and a link of that name to grantfs.
        let real: String
        let link: String

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
        func bwrap(_ words: [String], by program: String? = nil) throws -> Output {
            while true {
                let output = try Command.run([program ?? link] + words, environment: fixture.environment, within: 60)
                if output.status != 1 || !output.errors.contains("Unable to apply mount flags") { return output }
                try makeFiles()
            }
        }

        /// The system for reading. `/` has the mounts of other tests.
        let system =
            ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
            + ["--symlink", "usr/lib64", "/lib64", "--dev", "/dev", "--proc", "/proc"]

        /// What agents pass: all files for reading, a workspace for writing, and exceptions in it.
        var agentsWords: [String] {
            ["--new-session", "--die-with-parent", "--unshare-all"] + system + ["--ro-bind", fixture.base, fixture.base]
                + ["--bind", work, work, "--ro-bind", "\(work)/.git", "\(work)/.git", "--tmpfs", "\(work)/secret"]
                + ["--ro-bind", "/dev/null", "\(work)/denied"]
        }

        func requireNothingLeft() throws {
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
    }
}
