import TestSupport
import Testing

extension MountTests {
    /// Before Linux 6.9 the kernel itself repeats a refused request without end: madvise with
    /// MADV_POPULATE_READ. On later ones a program does the same.
    @Suite struct RefusedReadTests {
        @Test(
            "Repeated reads of a revoked mapping are refused at a bounded rate",
            // read(2) requests attributes first unless the kernel trusts its own, and these are
            // refused.
            arguments: [("shared", "populate"), ("exclusive", "populate"), ("exclusive", "read")])
        func again(cache: String, how: String) throws {
            let fixture = try MountFixture()
            for name in ["a", "b"] {
                try Command.shell("head -c 65536 /dev/zero >\"$1\"/file", try fixture.source(name)).orThrow()
                try fixture.grant(fixture.base + "/source/" + name)
            }
            let mountpoint = try fixture.mount(options: "cache=\(cache)")
            let asker = try Probe.role(["again", mountpoint + "/a/file", how])
            try asker.expect("ready")
            try fixture.revoke("a")
            asker.send("go")
            try asker.expect("begun")
            func refusals() throws -> Double { try fixture.metrics().value("grantfs_denials_total", ["name": "a"]) ?? 0 }
            try fixture.wait(until: "it asks faster than it is answered") { try refusals() > 100 }

            let before = try refusals()
            let began = Machine.milliseconds
            try fixture.wait(until: "it is still answered") { try refusals() > before + 100 }
            pause(milliseconds: 1000)
            let count = try refusals() - before
            let seconds = (Machine.milliseconds - began) / 1000
            // A hundred in a second at once, as many after 10 ms each. Without a bound there are
            // ten thousand.
            #expect(count < 100 + 300 * seconds, "\(count) refusals in \(seconds) s")
            try Command.run(["head", "-c", "1", mountpoint + "/b/file"]).orThrow()

            asker.send("end")
            try asker.expect("SIGKILL")
            #expect(asker.wait() == 0)
            try fixture.restore("a")
            try Command.run(["head", "-c", "1", mountpoint + "/a/file"]).orThrow()
        }
    }
}
