import TestSupport
import Testing

extension MountTests {
    /// A few thousand of the requests that `.ci/fuzz` makes, the same ones each time: see Tests/RequestFuzzer.
    @Suite(.enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot))) struct RequestFuzzing {
        @Test("Every fuzzed request is answered once with a valid reply", arguments: [1, 1000])
        func requestsAreAnswered(seed: Int) throws {
            let fixture = try MountFixture()
            let place = try fixture.directory("place")
            try fixture.mountOther(["mount", "-t", "tmpfs", "-o", "size=64m,nosuid,nodev,noexec", "none"], at: place)
            let output = try Command.run(
                [Programs.requestFuzzer, "\(seed)", "40"], environment: ["GRANTFS_FUZZ_DIRECTORY": place, "SWIFT_BACKTRACE": "enable=no"],
                within: 300)
            #expect(output.status == 0, "\(output)")
            #expect(output.text.contains("40 runs"))
        }
    }
}
