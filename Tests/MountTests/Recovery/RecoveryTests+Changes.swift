import Foundation
import Glibc
import TestSupport
import Testing

// What a daemon that dies leaves of changes that were under way.
extension MountTests.RecoveryTests {
    @Test(
        "No acknowledged change is lost while daemons die under load",
        arguments: deaths)
    func underLoad(_ way: Succession.Way) throws {
        let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "1000"])
        let place = scene.mount + "/a"
        // A file whose RELEASE the kernel drops stays locked.
        let locks = Machine.losesRequestsOfTheDying ? 0 : 3
        let load = try Child([
            "sh", "-uc",
            """
            cd "$1"; echo ready
            going() { [ ! -e "$1/stop" ] && kill -0 "$PPID"; }
            files() { i=0; while going "$2"; do
                mkdir "d$1.$i"; echo "$i" > "f$1.$i" && [ "$(cat "f$1.$i")" = "$i" ] && mv "f$1.$i" "g$1.$i" && rm "g$1.$i"; rmdir "d$1.$i"; i=$((i+1)); done; }
            append() { i=0; while going "$2"; do echo "$i" >> log && echo "$i" >> "$2/acknowledged"; i=$((i+1)); done; }
            locks() { while going "$2"; do
                flock lock sh -uc '[ ! -e '"$2"'/held ] || echo both >> '"$2"'/both; touch '"$2"'/held; rm '"$2"'/held'; done; }
            { files 1 "$2" & files 2 "$2" & append 1 "$2" & for n in $(seq "$3"); do locks "$n" "$2" & done; wait; } 2> "$2/errors"; echo done
            """, "sh", place, scene.fixture.base, "\(locks)",
        ])
        try load.expect("ready")
        try scene.replaceDaemon(12)
        _ = FileManager.default.createFile(atPath: scene.fixture.base + "/stop", contents: nil)
        try load.expect("done")
        let text = { (name: String) in (try? String(contentsOfFile: name, encoding: .utf8)) ?? "" }
        let strange = text(scene.fixture.base + "/errors").split(separator: "\n").filter { line in
            // A change that was made but not acknowledged shows later.
            !["Input/output error", "I/O error", "File exists", "No such file"].contains { line.contains($0) }
        }
        #expect(strange.isEmpty, "\(strange.prefix(5))")
        let (log, acknowledged) = (text(scene.source + "/log").split(separator: "\n"), text(scene.fixture.base + "/acknowledged"))
        #expect(!log.isEmpty && Set(acknowledged.split(separator: "\n")).isSubset(of: log))
        #expect(Set(log).count == log.count, "nothing was appended twice")
        #expect(!FileManager.default.fileExists(atPath: scene.fixture.base + "/both"), "two had the lock")
    }

    @Test(
        "A write that a dying daemon was receiving is not refused",
        .enabled(if: Machine.kernel >= (6, 9), "an earlier kernel cannot resend it"))
    func received() throws {
        let scene = try Succession(.death, switches: ["GRANTFS_TEST_CRASHES": "1000"])
        // A new daemon's first requests come to memory that it has not used yet.
        let writers = try Child([
            "python3", "-I", "-uc",
            """
            import os, sys, threading, time
            place, count = sys.argv[1], 24
            done, errors, ended = [0] * count, [], False
            def write(i):
                file, data = os.open(f'{place}/w{i}', os.O_CREAT | os.O_RDWR), bytes(1 << 20)
                sys.stdout.write('open\\n')
                while not ended:
                    try: os.pwrite(file, data, 0); done[i] += 1
                    except OSError as error: errors.append(error.errno)
            threads = [threading.Thread(target=write, args=(i,)) for i in range(count)]
            for thread in threads: thread.start()
            for line in sys.stdin:
                # A request that several daemons died with is refused.
                before = list(done)
                while any(now == then for now, then in zip(done, before)) and not errors: time.sleep(0.0002)
                print('all')
            ended = True
            for thread in threads: thread.join()
            print('errors', errors)
            """, scene.mount + "/a",
        ])
        for _ in 0..<24 { try writers.expect("open") }
        for _ in 0..<16 {
            writers.send("?")
            try writers.expect("all")
            let before = try scene.fixture.daemon(at: scene.mount)
            kill(before, SIGKILL)
            try scene.fixture.wait(until: "another daemon serves the mount") { try scene.fixture.daemon(at: scene.mount) != before }
        }
        writers.send("?")
        try writers.expect("all")
        writers.closeInput()
        #expect(writers.line() == "errors []")
        #expect(writers.wait() == 0)
    }

    @Test("A change is never made twice while daemons die", arguments: deaths)
    func once(_ way: Succession.Way) throws {
        let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "1000"])
        let makers = try (1...4).map { try Maker(scene.mount + "/a/made\($0)-") }
        defer { for maker in makers { _ = maker.stop() } }
        try scene.replaceDaemon(15)
        for maker in makers {
            #expect(maker.stop().isEmpty)
            let log = maker.log.replacingOccurrences(of: scene.mount + "/a", with: scene.source)
            let lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
            #expect(Set(lines).count == lines.count, "nothing was appended twice")
        }
    }

    @Test("An append that is made but not acknowledged gives EIO and is not repeated", arguments: deaths)
    func appended(_ way: Succession.Way) throws {
        let scene = try Succession(way)
        let source = try HostileSource("late", in: scene.fixture)
        defer { source.end() }
        try scene.fixture.grant(source.directory)
        let appending = try Child(["sh", "-c", "printf x >> \"$1\" 2> /dev/null", "sh", scene.mount + "/late/f-late"])
        try source.expect("written")
        try scene.replaceDaemon()
        #expect(appending.wait(within: 30) != 0)
        var status = stat()
        #expect(stat(source.directory + "/f-late", &status) == 0 && status.st_size == 1, "\(status.st_size)")
    }

    /// Makes one file after the other, each with a name of its own, until `stop`.
    private final class Maker: @unchecked Sendable {
        // Safe to share: what changes is behind the lock.
        private let lock = NSLock()
        private var (isStopped, hasEnded, errors) = (false, false, Set<Int32>())

        /// Where each number is appended once.
        let log: String

        init(_ prefix: String) throws {
            log = prefix + "log"
            // While no daemon dies: an open that makes a file may give EIO.
            let log = open(self.log, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0o600)
            if log < 0 { throw TestFailure("open: errno \(errno)") }
            Thread.detachNewThread { [self] in
                var number = 0
                defer { close(log) }
                while !lock.withLock({ isStopped }) {
                    number += 1
                    let file = open(prefix + String(number), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0o600)
                    let error = errno
                    if file < 0 { lock.withLock { _ = errors.insert(error) } }
                    if file >= 0 { close(file) }
                    unlink(prefix + String(number))
                    let line = "\(number)\n"
                    if write(log, line, line.utf8.count) != line.utf8.count {
                        let error = errno
                        lock.withLock { _ = errors.insert(error) }
                    }
                }
                lock.withLock { hasEnded = true }
            }
        }

        /// The errors that were not EIO.
        func stop() -> Set<Int32> {
            lock.withLock { isStopped = true }
            while !lock.withLock({ hasEnded }) { usleep(1_000) }
            return lock.withLock { errors.subtracting([EIO]) }
        }
    }

    @Test(
        "The result of a change that gave EIO shows in the mount", arguments: deaths
    )
    func afterAnError(_ way: Succession.Way) throws {
        let scene = try Succession(way, cache: "exclusive", switches: ["GRANTFS_TEST_CRASHES": "1000"])
        let place = scene.mount + "/a"
        let renames = try Child([
            "python3", "-I", "-c",
            """
            import os, sys, time
            place, source, base = sys.argv[1:]
            names = ['one', 'two']; errors = 0
            os.mkdir(f'{place}/one'); print('ready', flush=True)
            def seen(directory): return [name for name in ('one', 'two') if os.path.lexists(f'{directory}/{name}')]
            while not os.path.exists(base + '/stop'):
                try: os.rename(*(f'{place}/{name}' for name in names))
                except OSError as error:
                    if error.errno != 5: sys.exit(error)
                    errors += 1
                    # It is done or not done, and the mount says what the directory says.
                    for turn in range(1000):
                        if seen(place) == seen(source): break
                        time.sleep(0.002)
                    else: sys.exit('still another name')
                    if names[1] not in seen(source): continue
                names.reverse()
            print(errors)
            """, place, scene.source, scene.fixture.base,
        ])
        try renames.expect("ready")
        for _ in 1...30 {
            usleep(UInt32.random(in: 0..<50_000))
            try scene.replaceDaemon()
        }
        _ = FileManager.default.createFile(atPath: scene.fixture.base + "/stop", contents: nil)
        let errors = renames.line(within: 60) ?? ""
        #expect(Int(errors) != nil, "\(errors)")
    }

    @Test("A rename that was done but gave EIO shows the new name only", arguments: deaths)
    func renamedWithAnError(_ way: Succession.Way) throws {
        let scene = try Succession(way, cache: "exclusive")
        let volume = try Volume(.ext4, at: "volume", in: scene.fixture)
        let place = volume.place + "/a"
        mkdir(place, 0o755)
        try scene.fixture.grant(place, name: "frozen")
        let directory = scene.mount + "/frozen"
        mkdir(directory + "/old", 0o755)
        sync()
        let daemon = try scene.fixture.daemon(at: scene.mount)
        try Command.run(["fsfreeze", "--freeze", volume.place]).orThrow()
        // mv(1) would look again by itself.
        let renaming = "import os, sys\ntry: os.rename(*sys.argv[1:])\nexcept OSError as error: sys.exit(error.errno)"
        let rename: Child
        do {
            // It begins, cannot proceed yet, and completes when no process is left to report it.
            defer { _ = try? Command.run(["fsfreeze", "--unfreeze", volume.place]) }
            rename = try Child(["python3", "-I", "-c", renaming, directory + "/old", directory + "/new"])
            try scene.fixture.wait(until: "the daemon waits for the filesystem") { Processes.isInKernel(daemon) }
            kill(daemon, SIGKILL)
        }
        #expect(rename.wait(within: 30) == EIO)
        #expect(access(place + "/new", F_OK) == 0 && access(place + "/old", F_OK) == -1)
        try scene.fixture.wait(until: "the new name shows") { access(directory + "/new", F_OK) == 0 }
        try scene.fixture.wait(until: "the old name is gone") { access(directory + "/old", F_OK) == -1 && errno == ENOENT }
    }
}
