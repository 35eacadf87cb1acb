import CGrantSystem
import Glibc
import GrantMounts
import Testing

/// Paths as bytes.
@Suite struct CanonicalPathTests {
    @Test("A name that its directory finds and does not list is told from a listed one")
    func listed() throws {
        // The directory of a thread has such a name in /proc.
        let thread = clinux_gettid()
        try #require(thread != getpid())
        #expect(CanonicalPath.isListed(Array("/proc/\(getpid())/task/\(thread)/fd".utf8)))
        #expect(access("/proc/\(thread)/fd", F_OK) == 0)
        #expect(!CanonicalPath.isListed(Array("/proc/\(thread)/fd".utf8)))
        #expect(CanonicalPath.isListed([0x2F]))
    }
}
