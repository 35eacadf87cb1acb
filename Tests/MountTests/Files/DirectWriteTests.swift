import TestSupport
import Testing

extension MountTests {
    /// Writes past the kernel's cache, which others read through it.
    @Suite struct DirectWrites {
        @Test(
            "what an asynchronous write with O_DIRECT has written is what everybody reads once it has completed",
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
