import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct Locks {
        /// Where the first and the second process come from.
        enum Sides: String, CaseIterable, Sendable {
            case mountAndMount, mountAndHost, hostAndMount, twoMounts
        }

        @Test("exclude each other between processes, mounts and the host", arguments: ["fcntl", "ofd", "flock"], Sides.allCases)
        func exclude(kind: String, sides: Sides) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Data(count: 200).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            let mount = try fixture.mount() + "/a/file"
            let host = source + "/file"
            let (first, second) =
                switch sides {
                case .mountAndMount: (mount, mount)
                case .mountAndHost: (mount, host)
                case .hostAndMount: (host, mount)
                case .twoMounts: (mount, try fixture.mount(at: "second") + "/a/file")
                }
            let holder = try Probe.role(["lock", first, kind, "try"])
            try holder.expect("OK")
            let refused = try Probe.role(["lock", second, kind, "try"])
            try refused.expect("EAGAIN")
            let interrupted = try Probe.role(["lock", second, kind, "wait"])
            try interrupted.expect("waiting")
            let waiter = try Probe.role(["lock", second, kind, "wait"])
            try waiter.expect("waiting")
            pause(milliseconds: 50)
            kill(interrupted.pid, SIGTERM)
            #expect(interrupted.wait(within: 3) == -SIGTERM, "a waiting process can be interrupted")
            holder.send("let go")
            #expect(holder.wait() == 0)
            try waiter.expect("OK", within: 5)
        }

        @Test("keep SQLite whole: six writers, in the mount and on the host, lose no row", .enabled(if: Command.exists("sqlite3")))
        func sqliteWriters() throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try Command.run(["sqlite3", source + "/db", "create table t(w, i); pragma synchronous=off;"]).orThrow()
            try fixture.grant(source)
            let mount = try fixture.mount()
            try Command.shell(
                """
                for w in 1 2 3 4 5 6; do
                  db="$1/db"; if [ $w -gt 4 ]; then db="$2/db"; fi
                  { echo '.timeout 60000'; echo 'pragma synchronous=off;'; for i in $(seq 150); do echo "insert into t values($w,$i);"; done; } | sqlite3 -bail "$db" &
                done
                wait
                """, mount + "/a", source, within: 120
            ).orThrow()
            let count = try Command.run([
                "sqlite3", source + "/db", "select count(*), count(distinct w*1000+i) from t; pragma integrity_check;",
            ])
            #expect(count.lines == ["900|900", "ok"])
        }
    }
}
