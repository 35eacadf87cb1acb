import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite struct Memory {
        /// Reads and writes a megabyte of each file at once, past the cache. $1 is their directory,
        /// $2 their number.
        private static let storm = """
            import mmap, os, sys, threading
            def work(path):
                fd, memory = os.open(path, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
                os.preadv(fd, [memory], 0)
                os.pwritev(fd, [memory], 0)
                os.close(fd)
            threads = [threading.Thread(target=work, args=(f'{sys.argv[1]}/f{number}',)) for number in range(int(sys.argv[2]))]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            print('done', flush=True)
            """

        @Test(
            "Memory for large concurrent requests is returned",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)), arguments: ["shared", "exclusive"])
        func many(cache: String) throws {
            let count = 80
            let files = (0..<count).map { (name: "f\($0)", size: 1 << 20) }
            let mounted = try AHangingSource.Mounted(cache: cache, files: files)
            let (fixture, source) = (mounted.fixture, mounted.source)
            let daemon = try fixture.daemon(at: mounted.mountpoint)
            let words = ["python3", "-I", "-c", Self.storm, mounted.hung]
            // The first few bring threads and buffers that stay: at most eight workers wait for requests, with two megabytes each.
            for _ in 0..<4 { try Command.run(words + ["16"]).orThrow() }
            let before = Processes.anonymousKilobytes(daemon)
            var high = 0
            for operation in ["read", "write"] {
                try source.hang(operation)
                let child = try Child(words + ["\(count)"])
                try fixture.wait(until: "all have asked") { try mounted.inFlight >= count }
                high = max(high, Processes.anonymousKilobytes(daemon))
                source.goOn()
                try child.expect("done")
                high = max(high, Processes.anonymousKilobytes(daemon))
            }
            #expect(high > before + 40 << 10, "\(before) kB before, \(high) kB at the most")
            try fixture.wait(until: "the daemon has given it back", within: 60) { Processes.anonymousKilobytes(daemon) < before + 16 << 10 }
            source.end()
            fixture.finish()
        }
    }
}
