import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A daemon that dies while its mount is used, and is followed by another one: `mount -o recover`. What goes on is in `AnUpgrade`.
    @Suite struct ADaemonThatDies {
        private static let deaths = [Succession.Way.death, .deathOnOldKernel]

        @Test(
            "holds a revocation up that comes meanwhile: it is confirmed when it is true, and not before",
            arguments: ["shared", "exclusive"], deaths)
        func revokedMeanwhile(cache: String, _ way: Succession.Way) throws {
            let scene = try Succession(way, cache: cache, switches: ["GRANTFS_TEST_RECOVER": "slow taken"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            let revoked = try scene.fixture.grantfs("revoke", "a", "--timeout", "60", "--json")
            #expect(revoked.status == 0, "\(revoked)")
            #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES")
            #expect(access(scene.mount + "/a/file", R_OK) == -1 && errno == EACCES)
            #expect(try scene.fixture.status().mounts.count == 1)
        }

        @Test(
            "again and again leaves what was withdrawn refused in the same way, however often it is asked for meanwhile", arguments: deaths)
        func withdrawnLongAgo(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "20"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            #expect(try scene.fixture.grantfs("revoke", "a").status == 0)
            for turn in 1...5 {
                try scene.replaceDaemon()
                // What is left of it is looked at every second.
                usleep(1_300_000)
                #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES", "after \(turn) deaths")
            }
        }

        @Test("with as many descriptors as it may have, of which it was started with fewer, is followed", arguments: deaths)
        func manyDescriptors(_ way: Succession.Way) throws {
            let scene = try Succession(way, limits: ["--nofile=200:1024"])
            var opened: [Int32] = []
            defer { for descriptor in opened { close(descriptor) } }
            // Until there are no more.
            for number in 0..<1024 {
                let descriptor = open("\(scene.mount)/a/f\(number)", O_CREAT | O_RDWR, 0o644)
                if descriptor < 0 { break }
                opened.append(descriptor)
            }
            #expect(opened.count > 300)
            try scene.replaceDaemon(2)
            for descriptor in opened { #expect(write(descriptor, "x", 1) == 1) }
            #expect(try Data(contentsOf: URL(fileURLWithPath: scene.source + "/f299")) == Data("x".utf8))
        }

        @Test("leaves a claim to who holds it, and binds whom it binds; who waits has his place in the line", arguments: deaths)
        func claims(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "20"])
            let (fixture, source) = (scene.fixture, scene.source)
            try Data("old".utf8).write(to: URL(fileURLWithPath: source + "/claimed"))
            try fixture.grantfs("set", "a", "--coordination", "mandatory").orThrow()
            let (holder, first, second) = (try fixture.claimant(), try fixture.claimant(), try fixture.claimant())
            holder.send("write \(source)/claimed")
            try holder.expect("granted")
            for waiter in [first, second] {
                waiter.send("write \(source)/claimed")
                #expect(waiter.line(within: 0.3) == nil)
            }
            let bound = try Child(["cat", scene.mount + "/a/claimed"])
            for _ in 1...3 {
                try scene.replaceDaemon()
                #expect(first.line(within: 0.5) == nil && second.line(within: 0) == nil && bound.wait(within: 0) == nil, "they wait on")
                #expect(holder.line(within: 0) == nil)
                #expect(try Command.run(["cat", scene.mount + "/a/file"], within: 30).status == 0)
            }
            try Data("new".utf8).write(to: URL(fileURLWithPath: source + "/claimed"))
            holder.send("end")
            try holder.expect("granted")
            try first.expect("granted")
            #expect(second.line(within: 0.3) == nil)
            try scene.replaceDaemon()
            // One whose process has ended meanwhile is not held for it.
            kill(first.pid, SIGKILL)
            try second.expect("granted")
            second.send("end")
            try second.expect("granted")
            #expect(bound.wait(within: 30) == 0)
            // One that was taken along ends with its grant, whenever that is withdrawn.
            holder.send("write \(source)/claimed")
            try holder.expect("granted")
            try scene.replaceDaemon()
            #expect(try fixture.revoke("a").allSatisfy { $0.mounts.allSatisfy { $0.confirmed } })
            try fixture.restore("a")
            second.send("write \(source)/claimed")
            try second.expect("granted")
        }

        @Test("has presenters asked before a claim is granted, as they would have been", arguments: deaths)
        func presenters(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "20"])
            let item = scene.source + "/file"
            let presenter = try scene.fixture.presenting(item)
            try scene.fixture.tell(presenter, "hold")
            let (held, asker) = (try scene.fixture.claimant(), try scene.fixture.claimant())
            asker.send("write \(item)")
            try presenter.expect("asked relinquishToWriter \(item)")
            try scene.replaceDaemon(2)
            #expect(asker.line(within: 1) == nil, "it waits for the answer")
            presenter.send("answer")
            try asker.expect("granted")
            held.send("read \(item)")
            try scene.replaceDaemon()
            // The presenter is waited for until it has come again.
            try scene.fixture.tell(presenter, "hold")
            asker.send("end")
            try asker.expect("granted")
            #expect(held.line(within: 1) == nil, "it waits for the answer")
            presenter.send("answer")
            try held.expect("granted")
        }

        @Test("in the middle of claims that come and go: each is held by one at a time, and nobody loses one")
        func claimsUnderWay() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_CRASHES": "1000"])
            let work = try (0..<4).map { number in
                try Child(
                    [
                        "sh", "-uc",
                        """
                        echo ready; i=0
                        while [ ! -e "$2/stop" ]; do
                            "$1" coordinate write "$3/file" -- sh -c 'mkdir "$1/one" || echo both >> "$1/both"; rmdir "$1/one"' sh "$2" 2>> "$2/errors" || echo lost >> "$2/lost"
                            i=$((i+1))
                        done; echo "$i"
                        """, "sh", Programs.grantfs, scene.fixture.base, scene.source,
                    ], environment: scene.fixture.environment)
            }
            for one in work { try one.expect("ready") }
            for _ in 1...12 {
                try scene.replaceDaemon()
                usleep(UInt32.random(in: 0..<150_000))
            }
            _ = FileManager.default.createFile(atPath: scene.fixture.base + "/stop", contents: nil)
            for one in work {
                let count = Int(one.line(within: 60) ?? "") ?? 0
                #expect(count > 3)
            }
            let text = { (name: String) in (try? String(contentsOfFile: scene.fixture.base + "/" + name, encoding: .utf8)) ?? "" }
            #expect(text("both") == "" && text("lost") == "", "\(text("errors"))")
        }

        @Test(
            "refuses what was withdrawn while nobody served from its first answer on, also when who has withdrawn it is gone",
            arguments: deaths)
        func revokedByWhoIsGone(_ way: Succession.Way) throws {
            // It is slow before it serves, so that it is withdrawn then, and afterwards, before it looks again.
            let scene = try Succession(way, switches: ["GRANTFS_TEST_RECOVER": "slow taken,slow begun"])
            let file = open(scene.mount + "/a/file", O_RDONLY)
            defer { close(file) }
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            let revoking = try Child([Programs.grantfs, "revoke", "a", "--timeout", "60"], environment: scene.fixture.environment)
            try scene.fixture.wait(until: "the revocation is recorded") {
                try scene.fixture.list().allSatisfy { $0.state != "active" }
            }
            kill(revoking.pid, SIGKILL)
            // The kernel has nothing of the last page.
            var byte: UInt8 = 0
            #expect(pread(file, &byte, 1, 8191) == -1 && errno == EACCES)
            #expect(access(scene.mount + "/a/other", F_OK) == -1 && errno == EACCES)
        }

        @Test("in the middle of a withdrawal: the next one carries it through before it is confirmed")
        func midWithdrawal() throws {
            for turn in 0..<6 {
                let scene = try Succession(.death)
                let holder = try scene.holder(["map", "fd", "cwd"])
                let daemon = try scene.fixture.daemon(at: scene.mount)
                let revoking = try Child(
                    [Programs.grantfs, "revoke", "a", "--timeout", "60", "--json"], environment: scene.fixture.environment)
                usleep(UInt32(turn) * 4_000)
                kill(daemon, SIGKILL)
                #expect(revoking.wait() == 0)
                #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES", "killed after \(turn * 4) ms")
            }
        }

        @Test("leaves a read-only grant read-only, and one that is narrowed meanwhile becomes so")
        func narrowed() throws {
            let scene = try Succession(.death)
            let early = open(scene.mount + "/a/file", O_RDWR)
            defer { close(early) }
            #expect(try scene.fixture.grantfs("set", "a", "--access", "read-only").status == 0)
            try scene.replaceDaemon()
            #expect(write(early, "x", 1) == -1 && [EROFS, EACCES, EBADF].contains(errno), "\(errno)")
            #expect(open(scene.mount + "/a/file", O_RDWR) == -1 && errno == EROFS)
            var byte: UInt8 = 0
            #expect(pread(early, &byte, 1, 0) == 1)
            #expect(try scene.fixture.grantfs("set", "a", "--access", "read-write").status == 0)
            let late = open(scene.mount + "/a/file", O_RDWR)
            defer { close(late) }
            #expect(late >= 0 && write(late, "x", 1) == 1)
        }

        @Test("with a request that kills every daemon: that is answered with EIO, and the mount goes on", arguments: deaths)
        func deadlyRequest(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_TRAP": "locked"])
            let asked = try Command.run(["stat", "-f", scene.mount + "/a/file"])
            #expect(asked.status != 0 && asked.errors.contains("Input/output error"), "\(asked)")
            #expect(try String(contentsOfFile: scene.mount + "/a/file", encoding: .utf8).count == 8192)
            #expect(try scene.fixture.status().mounts.count == 1)
        }

        @Test("again and again within a minute is not followed for ever: then the mount is dead, and what is held can be revoked")
        func crashLoop() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_CRASHES": "2"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            try scene.replaceDaemon(2)
            try scene.fixture.killDaemon(at: scene.mount)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
            let status = try scene.fixture.grantfs("status")
            #expect(status.status == 1 && status.errors.contains("again and again"), "\(status)")
        }

        @Test("and whose successor dies as it takes over: another one does, or the mount is dead and says so")
        func successorDies() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_RECOVER": "taken", "GRANTFS_TEST_CRASHES": "2"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
        }

        @Test("and whose successors get stuck as they take over: they are given up, and after a time the mount is dead and says so")
        func successorsGetStuck() throws {
            let scene = try Succession(
                .death, switches: ["GRANTFS_TEST_RECOVER": "stuck taken", "GRANTFS_TEST_CRASHES": "1000", "GRANTFS_TEST_PATIENCE": "1"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            kill(try scene.fixture.daemon(at: scene.mount), SIGKILL)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
            #expect(try scene.fixture.grantfs("status").status == 1)
        }

        @Test("and whose successor dies as it is about to have the mount is followed by one daemon, and not by two")
        func successorDiesArmed() throws {
            let scene = try Succession(.death, switches: ["GRANTFS_TEST_RECOVER": "first armed"])
            let holder = try scene.holder(["map", "fd", "cwd"])
            let first = try scene.fixture.daemon(at: scene.mount)
            kill(first, SIGKILL)
            #expect(try Succession.said(holder).hasPrefix("map read fd read cwd seen"))
            // Who would start another one does so at once.
            usleep(500_000)
            let daemons = try Command.run(["pgrep", "-f", "recover --store \(scene.fixture.base)/store"]).text.split(separator: "\n")
            // It, and its supervisor.
            #expect(daemons.count == 2, "\(daemons)")
        }

        @Test("can be upgraded, and its successor dies and is followed as well")
        func upgraded() throws {
            let scene = try Succession(.death)
            let holder = try scene.holder(["map", "fd", "cwd"])
            #expect(try scene.fixture.grantfs("upgrade", scene.mount).status == 0)
            try scene.replaceDaemon(2)
            #expect(try scene.fixture.grantfs("upgrade", scene.mount).status == 0)
            #expect(try Succession.said(holder).hasPrefix("map read fd read cwd seen"))
            #expect(try scene.fixture.revoke("a").allSatisfy { $0.mounts.allSatisfy { $0.confirmed } })
            #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES")
        }

        @Test(
            "again and again under programs that create, read, append, rename, remove and lock: EIO at the most, and nothing acknowledged is lost",
            arguments: deaths)
        func underLoad(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "1000"])
            let place = scene.mount + "/a"
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
                { files 1 "$2" & files 2 "$2" & append 1 "$2" & locks 1 "$2" & locks 2 "$2" & locks 3 "$2" & wait; } 2> "$2/errors"; echo done
                """, "sh", place, scene.fixture.base,
            ])
            try load.expect("ready")
            try scene.replaceDaemon(12)
            _ = FileManager.default.createFile(atPath: scene.fixture.base + "/stop", contents: nil)
            try load.expect("done")
            let text = { (name: String) in (try? String(contentsOfFile: name, encoding: .utf8)) ?? "" }
            let strange = text(scene.fixture.base + "/errors").split(separator: "\n").filter { line in
                // What was done and could not be acknowledged shows later.
                !["Input/output error", "I/O error", "File exists", "No such file"].contains { line.contains($0) }
            }
            #expect(strange.isEmpty, "\(strange.prefix(5))")
            let (log, acknowledged) = (text(scene.source + "/log").split(separator: "\n"), text(scene.fixture.base + "/acknowledged"))
            #expect(!log.isEmpty && Set(acknowledged.split(separator: "\n")).isSubset(of: log))
            #expect(Set(log).count == log.count, "nothing was appended twice")
            #expect(!FileManager.default.fileExists(atPath: scene.fixture.base + "/both"), "two had the lock")
        }

        @Test("does nothing twice: a file that was not there is made, and never there already; a line is appended once", arguments: deaths)
        func once(_ way: Succession.Way) throws {
            let scene = try Succession(way, switches: ["GRANTFS_TEST_CRASHES": "1000"])
            let makers = (1...4).map { Maker(scene.mount + "/a/made\($0)-") }
            defer { for maker in makers { _ = maker.stop() } }
            try scene.replaceDaemon(15)
            for maker in makers {
                #expect(maker.stop().isEmpty)
                let log = maker.log.replacingOccurrences(of: scene.mount + "/a", with: scene.source)
                let lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
                #expect(Set(lines).count == lines.count, "nothing was appended twice")
            }
        }

        @Test("with an append that is made and not yet acknowledged: that is EIO, and not made again", arguments: deaths)
        func appended(_ way: Succession.Way) throws {
            let scene = try Succession(way)
            let source = try HostileSource("late", in: scene.fixture)
            defer { source.end() }
            try scene.fixture.grant(source.directory)
            let appending = try Child(["sh", "-c", "printf x >> \"$1\"", "sh", scene.mount + "/late/f-late"])
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

            init(_ prefix: String) {
                log = prefix + "log"
                Thread.detachNewThread { [self] in
                    var number = 0
                    let log = open(self.log, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0o600)
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
            "with a change that is EIO, done or not: what is there shows at once, however long the kernel may keep names", arguments: deaths
        )
        func afterAnError(_ way: Succession.Way) throws {
            let scene = try Succession(way, cache: "exclusive", switches: ["GRANTFS_TEST_CRASHES": "1000"])
            let place = scene.mount + "/a"
            let renames = try Child([
                "sh", "-uc",
                """
                cd "$1"; mkdir one; echo ready; from=one; to=two; errors=0
                while [ ! -e "$3/stop" ]; do
                    if mv -T "$from" "$to" 2> "$3/error"; then :; else
                        grep -q 'Input/output error' "$3/error" || { cat "$3/error"; exit; }
                        errors=$((errors+1)); turn=0
                        # It is done or not done, and the mount says what the directory says.
                        until [ "$(ls -d one two 2> /dev/null)" = "$(cd "$2"; ls -d one two 2> /dev/null)" ]; do
                            turn=$((turn+1)); [ "$turn" -lt 100 ] || { echo "still another name"; exit; }
                        done
                        [ -d "$2/$to" ] || continue
                    fi
                    next=$from; from=$to; to=$next
                done; echo "$errors"
                """, "sh", place, scene.source, scene.fixture.base,
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

        @Test("with a rename that was done and is EIO: the new name shows, and the old one does not", arguments: deaths)
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
                // It is begun, cannot be done yet, and is done when nobody is left to say so.
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

        @Test("whose supervisor has died too leaves the mount as it would without the option")
        func bothDie() throws {
            let scene = try Succession(.death)
            let holder = try scene.holder(["map", "fd", "cwd"])
            let daemon = try scene.fixture.daemon(at: scene.mount)
            let supervisors = Processes.children(of: daemon).filter { Processes.name(of: $0) == "grantfs-superv" }
            #expect(supervisors.count == 1)
            kill(supervisors[0], SIGKILL)
            #expect(try Succession.said(holder).hasPrefix("map read fd read cwd seen"))
            try scene.fixture.killDaemon(at: scene.mount)
            try scene.fixture.wait(until: "the mount is dead") { access(scene.mount + "/a", F_OK) == -1 && errno == ENOTCONN }
            try scene.fixture.wait(until: "the keeper has made the kernel forget") {
                try Succession.said(holder) == "map SIGBUS fd ENOTCONN cwd ENOTCONN"
            }
        }

        @Test("in order leaves no process behind")
        func endsInOrder() throws {
            let scene = try Succession(.death)
            let daemon = try scene.fixture.daemon(at: scene.mount)
            let others = Processes.children(of: daemon)
            #expect(others.count == 2)
            #expect(try scene.fixture.grantfs("unmount", scene.mount).status == 0)
            try scene.fixture.wait(until: "all have ended") { ([daemon] + others).allSatisfy { !Processes.isRunning($0) } }
        }
    }
}
