import TestSupport
import Testing

extension MountTests {
    /// Writes past the kernel's cache, which others read through it.
    @Suite struct DirectWrites {
        @Test(
            "An asynchronous O_DIRECT write is visible to every reader once it completes",
            arguments: ["shared", "exclusive", "none"])
        func asynchronous(cache: String) throws {
            let fixture = try MountFixture()
            try fixture.grant(try fixture.source("a"))
            let mount = try fixture.mount(options: "cache=\(cache)")
            try Command.run([Programs.asynchronousWriter, mount + "/a/file", "3000", "3"]).orThrow()
            fixture.finish()
        }
    }
}
