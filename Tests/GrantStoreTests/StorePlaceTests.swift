import Foundation
import Glibc
import GrantModel
import Testing

@testable import GrantStore

/// Where a new store is made.
@Suite struct StorePlaceTests {
    let scratch = Scratch()

    /// Gives another user's link the name of a store and takes it away again, until it is told to end.
    private final class Swapper: @unchecked Sendable {
        private let (link, name): (String, String)
        private let thread: Thread
        private let ended = DispatchSemaphore(value: 0)

        init(_ link: String, _ name: String) {
            (self.link, self.name) = (link, name)
            let ended = ended
            thread = Thread {
                while !Thread.current.isCancelled {
                    rename(link, name)
                    rename(name, link)
                }
                ended.signal()
            }
            thread.start()
        }

        func end() {
            thread.cancel()
            ended.wait()
        }
    }

    @Test("A new store of root's is never made behind another user's link", .enabled(if: geteuid() == 0, "needs root"))
    func behindALink() throws {
        // As /tmp is: others may create names, and take nothing of root's away.
        let shared = scratch.path + "/shared"
        let roots = scratch.path + "/roots"
        for directory in [shared, roots] { #expect(mkdir(directory, 0o700) == 0) }
        chmod(shared, 0o1777)
        let (link, name) = (shared + "/link", shared + "/store")
        symlink(roots, link)
        lchown(link, 65_534, 65_534)
        let swapper = Swapper(link, name)
        for _ in 0..<150 {
            _ = try? GrantStore(directory: name, create: true)
            var status = stat()
            if lstat(name, &status) == 0, status.st_mode & S_IFMT == S_IFDIR { try FileManager.default.removeItem(atPath: name) }
            if try !FileManager.default.contentsOfDirectory(atPath: roots).isEmpty { break }
        }
        swapper.end()
        #expect(try FileManager.default.contentsOfDirectory(atPath: roots).isEmpty)
    }
}
