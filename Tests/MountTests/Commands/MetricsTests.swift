import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("Metrics") struct Metrics {
        private let fixture: MountFixture
        private let source: String
        private let mountpoint: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("a")
            try Data(repeating: 7, count: 100_000).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source)
            // A name that must be escaped, and one that is not UTF-8.
            try fixture.grant(try fixture.source("b"), name: "qu\"o\\te")
            mountpoint = try fixture.mount(options: "cache=none")
        }

        /// `timeout`: the time that a slow daemon has to answer.
        private func metrics(timeout: String = "20") throws -> OpenMetricsText {
            try OpenMetricsText(try fixture.grantfs("metrics", "--timeout", timeout).orThrow().text)
        }

        @Test("Metrics are OpenMetrics and count the operations of every live mount")
        func counting() throws {
            for _ in 0..<20 { try Command.run(["cat", mountpoint + "/a/file"]).orThrow() }
            // The kernel may forget an unused inode at any time.
            let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: mountpoint + "/a/file"))
            defer { try? held.close() }
            try Command.shell("head -c 5000 /dev/zero > \"$1\"", mountpoint + "/a/new").orThrow()
            let second = try fixture.mount(at: "second")
            let mine = ["mountpoint": mountpoint]
            let opening = mine.merging(["kind": "OPEN"]) { $1 }
            let text = try metrics()
            for place in [mountpoint, second] { #expect(text.value("grantfs_up", ["mountpoint": place, "view": "default"]) == 1) }
            #expect(try #require(text.value("grantfs_read_bytes_total", mine)) >= 2_000_000)
            #expect(try #require(text.value("grantfs_written_bytes_total", mine)) >= 5000)
            let grant = mine.merging(["name": "a"]) { $1 }
            #expect(try #require(text.value("grantfs_grant_read_bytes_total", grant)) >= 2_000_000)
            #expect(try #require(text.value("grantfs_grant_written_bytes_total", grant)) == 5000)
            #expect(try #require(text.value("grantfs_grant_operations_total", grant)) >= 60, "openings, attributes and reads")
            #expect(text.value("grantfs_grant_read_bytes_total", mine.merging(["name": "qu\"o\\te"]) { $1 }) == 0)
            let opens = try #require(text.value("grantfs_requests_total", opening))
            #expect(opens >= 20)
            let timed = try #require(text.value("grantfs_request_duration_seconds_count", opening))
            #expect(timed >= 1 && timed <= opens, "each eighth of a worker is timed: \(timed) of \(opens)")
            #expect(try #require(text.value("grantfs_request_duration_seconds_sum", opening)) > 0)
            #expect(text.value("grantfs_grant_active", mine.merging(["name": "qu\"o\\te"]) { $1 }) == 1)
            #expect(try #require(text.value("grantfs_inodes", mine)) >= 2 && text.value("grantfs_waiting_locks", mine) == 0)
            #expect(try #require(text.value("grantfs_workers", mine)) >= 1)
            #expect(try abs(#require(text.value("grantfs_mount_start_time_seconds", mine)) - Date().timeIntervalSince1970) < 600)
        }

        @Test("Metrics count withdrawals with their duration, and refusals")
        func withdrawals() throws {
            let mine = ["mountpoint": mountpoint]
            #expect(try metrics().value("grantfs_withdrawal_duration_seconds_count", mine.merging(["kind": "revocation"]) { $1 }) == 0)
            let held = try FileHandle(forUpdating: URL(fileURLWithPath: mountpoint + "/a/file"))
            try fixture.grantfs("set", "a", "--access", "read-only").orThrow()
            try fixture.revoke("a")
            #expect(throws: (any Error).self) { try held.read(upToCount: 1) }
            try? held.close()
            let text = try metrics()
            for kind in ["revocation", "narrowing"] {
                let labels = mine.merging(["kind": kind]) { $1 }
                #expect(text.value("grantfs_withdrawal_duration_seconds_count", labels) == 1, "\(kind)")
                #expect(try #require(text.value("grantfs_withdrawal_duration_seconds_sum", labels)) > 0)
            }
            try fixture.wait(until: "refusals are counted", within: 20) {
                try metrics().value("grantfs_denials_total", mine.merging(["name": "a"]) { $1 }) ?? 0 >= 1
            }
        }

        @Test("Metrics count operations that wait for a claim")
        func waiting() throws {
            try fixture.grantfs("set", "a", "--coordination", "mandatory").orThrow()
            let claimant = try fixture.claimant()
            claimant.send("write \(source)")
            try claimant.expect("granted")
            let readers = try (0..<3).map { _ in try Child(["head", "-c", "1", mountpoint + "/a/file"]) }
            let mine = ["mountpoint": mountpoint]
            try fixture.wait(until: "they wait") { try metrics().value("grantfs_waiting_for_claims", mine) == 3 }
            claimant.send("end")
            for reader in readers { #expect(reader.wait(within: 30) == 0) }
            #expect(try metrics().value("grantfs_waiting_for_claims", mine) == 0)
        }

        @Test("Metrics report a mount that does not answer as down")
        func silent() throws {
            let daemon = try fixture.daemon(at: mountpoint)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            #expect(try metrics(timeout: "0.2").value("grantfs_up", ["mountpoint": mountpoint]) == 0)
        }

        @Test("Metrics are served repeatedly at a private socket")
        func scraping() throws {
            let socket = fixture.base + "/metrics.sock"
            let server = try Child([Programs.grantfs, "metrics", "--listen", "unix:" + socket], environment: fixture.environment)
            try fixture.wait(until: "it listens") { (try? exchange("GET / HTTP/1.0\r\n\r\n", at: socket)) != nil }
            var status = stat()
            #expect(stat(socket, &status) == 0 && status.st_mode & 0o777 == 0o600)
            for request in ["GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
                var answer = try #require(try exchange(request, at: socket))
                // It waits two seconds for a daemon, which may stand for longer.
                try fixture.wait(until: "the daemon has answered it", within: 60) {
                    answer = try #require(try exchange(request, at: socket))
                    return try OpenMetricsText(answer.body).value("grantfs_up", ["mountpoint": mountpoint]) == 1
                }
                #expect(answer.head.hasPrefix("HTTP/1.1 200 OK\r\n"))
                #expect(answer.head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"))
                #expect(answer.head.contains("Content-Length: \(answer.body.utf8.count)\r\n"))
            }
            #expect(try exchange("GET /etc/passwd HTTP/1.1\r\n\r\n", at: socket)?.head.hasPrefix("HTTP/1.1 404") == true)
            #expect(try exchange("DELETE / HTTP/1.1\r\n\r\n", at: socket)?.head.hasPrefix("HTTP/1.1 405") == true)
            let second = try Command.run([Programs.grantfs, "metrics", "--listen", "unix:" + socket], environment: fixture.environment)
            #expect(second.status == 1, "the place is taken: \(second)")
            kill(server.pid, SIGTERM)
            #expect(server.wait(within: 20) == 0)
            #expect(access(socket, F_OK) != 0, "the socket is gone with it")
        }

        private func exchange(_ request: String, at path: String) throws -> (head: String, body: String)? {
            let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(descriptor) }
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
            let size = socklen_t(MemoryLayout<sockaddr_un>.size)
            let connected = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, size) }
            }
            guard connected == 0 else { throw TestFailure("connect: \(String(cString: strerror(errno)))") }
            _ = Array(request.utf8).withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            var bytes: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 65536)
            while true {
                let count = read(descriptor, &buffer, buffer.count)
                if count <= 0 { break }
                bytes += buffer.prefix(count)
            }
            let parts = String(decoding: bytes, as: UTF8.self).components(separatedBy: "\r\n\r\n")
            return parts.count == 2 ? (parts[0] + "\r\n", parts[1]) : nil
        }
    }
}
