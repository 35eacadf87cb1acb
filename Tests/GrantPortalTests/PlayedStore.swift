import Foundation
import TestSupport

/// A permission store in which a test says what happens around the next change, and how calls are answered: see `permission-store`.
final class PlayedStore {
    private static let source = PortalClient.source.deletingLastPathComponent().appendingPathComponent("permission-store")
    private let child: Child

    /// In a session that has no other one.
    init(_ session: PortalSession) throws {
        let script = session.fixture.base + "/permission-store"
        try Data(contentsOf: Self.source).write(to: URL(fileURLWithPath: script))
        child = try Child(["/usr/bin/python3", script], identity: session.fixture.owner, environment: session.fixture.environment)
        session.companions.append(child)
        try child.expect("\"ready\"")
    }

    /// Changes of others around the next change: before it, unless `own` is among them. Each
    /// further call is for the change after that.
    func around(_ steps: [Any]) throws { try tell(["around": steps]) }

    func answers(_ kind: String) throws { try tell(["answers": kind]) }

    /// A change of another program, made now.
    func put(_ id: String, _ permissions: [String: [String]]) throws { try tell(["put": id, "permissions": permissions]) }

    /// This number of signals from a client that claims to be the permission store.
    func forge(_ id: String, count: Int) throws {
        try tell(["forged": [id, [String: [String]]()] as [Any], "count": count])
    }

    /// The next call is kept: it is neither carried out nor answered until `release`. Those after it are.
    func hold() throws { try tell(["hold": true]) }

    /// How many calls are kept.
    var held: Int { get throws { number("held") } }

    /// Carries out the calls that are kept.
    func release() throws { try tell(["release": true]) }

    /// Announces so many changes of an entry, each with so many bytes of data.
    func announce(_ table: String, _ id: String, count: Int, bytes: Int) throws {
        try tell(["announce": [table, id], "count": count, "bytes": bytes])
    }

    /// The number of calls it has received.
    var calls: Int { get throws { number("calls") } }

    private func number(_ question: String) -> Int {
        send([question: 0])
        return child.line(within: 10).flatMap { Int($0) } ?? -1
    }

    func end() { child.kill() }

    private func tell(_ request: [String: Any]) throws {
        send(request)
        try child.expect("\"ok\"")
    }

    private func send(_ request: [String: Any]) {
        child.send(String(decoding: (try? JSONSerialization.data(withJSONObject: request)) ?? Data(), as: UTF8.self))
    }
}

/// Steps around a change.
enum PlayedStep {
    static func set(_ id: String, _ app: String, _ words: [String]) -> Any { ["set": [id, app, words] as [Any]] }
    static func put(_ id: String, _ permissions: [String: [String]]) -> Any { ["put": [id, permissions] as [Any]] }
    static func delete(_ id: String) -> Any { ["delete": id] }
    static func forged(_ id: String, _ permissions: [String: [String]]) -> Any { ["forged": [id, permissions] as [Any]] }
    static var fail: Any { ["fail": true] }
    static var own: Any { "own" }
}
