import Foundation
import Glibc
import TestSupport
import Testing

// What a daemon that dies leaves of claims and presenters.
extension MountTests.RecoveryTests {
    @Test("Claims and their order survive the death of a daemon", arguments: deaths)
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

    @Test("A claim ends if its grant is withdrawn while no daemon serves", arguments: deaths)
    func claimsWithdrawn(_ way: Succession.Way) throws {
        let scene = try Succession(way, switches: ["GRANTFS_TEST_RECOVER": "held begin"])
        let (holder, other) = (try scene.fixture.claimant(), try scene.fixture.claimant())
        holder.send("write \(scene.source)/file")
        try holder.expect("granted")
        try scene.killAndHold()
        let revoking = try Child([Programs.grantfs, "revoke", "a", "--timeout", "60"], environment: scene.fixture.environment)
        try scene.fixture.wait(until: "the revocation is recorded") { try scene.fixture.list().allSatisfy { $0.state != "active" } }
        scene.goOn()
        #expect(revoking.wait(within: 60) == 0)
        try scene.fixture.restore("a")
        other.send("write \(scene.source)/file")
        try other.expect("granted")
    }

    @Test("Presenters are asked before a claim is granted after a daemon's death", arguments: deaths)
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
        // The claim waits for the presenter until it has reconnected.
        try scene.fixture.tell(presenter, "hold")
        asker.send("end")
        try asker.expect("granted")
        #expect(held.line(within: 1) == nil, "it waits for the answer")
        presenter.send("answer")
        try held.expect("granted")
    }

    @Test("Each item has one claimant at a time while daemons die")
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
}
