import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// The desktop's own portal and this one, driven by the same calls. Tests/Fixtures/portal-comparison.md has their results.
    /// GRANTFS_RECORD_PORTAL=1 regenerates it.
    @Suite(.enabled(if: access(PortalSession.original, X_OK) == 0, "xdg-document-portal is not installed"))
    struct Comparison {
        typealias Row = (what: String, try: @Sendable (PortalSession, String) throws -> String)
        static let app = "org.test.App"
        private static let place = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent(
            "../Fixtures/portal-comparison.md"
        )
        .standardized

        @Test("Both portals answer the same calls as portal-comparison.md records")
        func sideBySide() throws {
            let theirs = try results(isOriginal: true)
            let ours = try results(isOriginal: false)
            let rows = zip(zip(Self.rows, theirs), ours).map { "| \($0.0.what) | \($0.1) | \($1)\($0.1 == $1 ? "" : " **≠**") |" }
            let page = try String(contentsOf: Self.place, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false).map(
                String.init)
            let before = page.prefix { !$0.hasPrefix("| --- |") }
            if ProcessInfo.processInfo.environment["GRANTFS_RECORD_PORTAL"] != nil {
                let after = page.dropFirst(before.count + 1).drop { $0.hasPrefix("|") }
                let whole = before + ["| --- | --- | --- |"] + rows + after
                try whole.joined(separator: "\n").write(to: Self.place, atomically: true, encoding: .utf8)
                return
            }
            let kept = page.dropFirst(before.count + 1).prefix { $0.hasPrefix("|") }
            // Another version of theirs may give other results. Ours are promised.
            let version = try Command.run([PortalSession.original, "--version"]).text.split(separator: " ").last.map(String.init) ?? ""
            let isThatVersion = version.hasPrefix("1.16")
            #expect(kept.count == rows.count)
            for (kept, row) in zip(kept, rows) {
                let (kept, row) = (kept.components(separatedBy: " | "), row.components(separatedBy: " | "))
                if isThatVersion { #expect(kept == row) } else { #expect(kept.first == row.first && own(kept) == own(row)) }
            }
        }

        private func own(_ cells: [String]) -> String { (cells.last ?? "").replacingOccurrences(of: " **≠**", with: "") }

        private func results(isOriginal: Bool) throws -> [String] {
            let session = try PortalSession()
            try isOriginal ? session.startOriginal() : session.start()
            return try Self.rows.enumerated().map { number, row in
                let file = try session.file("file\(number)", "old")
                return try row.try(session, file).replacingOccurrences(of: session.fixture.base, with: "…").replacingOccurrences(
                    of: "org.freedesktop.DBus.Error.", with: "")
            }
        }

        // What a row says of an answer, and of a file.
        static func said(_ answer: PortalAnswer) -> String { answer.error ?? "an id" }
        static func seen(_ answer: PortalAnswer) -> String { answer.errno ?? answer.texts.first.map { "“\($0)”" } ?? "done" }
        static func path(_ session: PortalSession, _ id: String, _ file: String) -> String {
            "\(session.mountpoint)/\(id)/" + URL(fileURLWithPath: file).lastPathComponent
        }
        static func inApp(_ session: PortalSession, _ id: String, _ file: String) -> String {
            "\(session.mountpoint)/by-app/\(app)/\(id)/" + URL(fileURLWithPath: file).lastPathComponent
        }
        /// The result of a read of an open descriptor.
        static func reading(_ descriptor: Int32) -> String {
            if descriptor < 0 { return "not opened" }
            var buffer = [UInt8](repeating: 0, count: 16)
            let count = pread(descriptor, &buffer, buffer.count, 0)
            return count < 0 ? (errno == EACCES ? "EACCES" : "\(errno)") : "“\(String(decoding: buffer.prefix(count), as: UTF8.self))”"
        }
        static func writing(_ descriptor: Int32) -> String {
            let count = pwrite(descriptor, "x", 1, 0)
            return count < 0 ? (errno == EROFS ? "EROFS" : errno == EACCES ? "EACCES" : "\(errno)") : "goes on"
        }
        static func same(_ one: PortalAnswer, _ other: PortalAnswer) -> String { one.id == other.id ? "the same id" : "another id" }
        /// The result after both have noticed a change on the host.
        static func later<Value>(_ body: () throws -> Value) rethrows -> Value {
            usleep(3_500_000)
            return try body()
        }

        static let rows = adding + permitting + killed

        static let killed: [Row] = [
            (
                "the service is killed; a document is read",
                { session, file in
                    let id = try session.host.add(file).id
                    try session.stop(with: SIGKILL)
                    let answer = seen(try session.host.read(path(session, id, file)))
                    // Theirs is unmounted by another process, a moment later.
                    return answer == "ENOTCONN" ? "ENOENT" : answer
                }
            )
        ]

        static func named(_ session: PortalSession, _ file: String, _ name: [String: Any]) throws -> PortalAnswer {
            let directory = (file as NSString).deletingLastPathComponent
            return try session.host.call("AddNamed", "(haybb)", [0, name, true, false], open: [directory])
        }
    }
}
