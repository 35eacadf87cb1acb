import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantControl

/// Echoes each question, and records sessions that ended.
private final class Sessions: SessionHandler {
    let ended = Lock(0)

    func received(_ request: SessionRequest, from session: ControlSession) {
        guard case .endClaim(let number) = request else { return }
        session.send(.refused(claim: number, .ended, text: ""))
    }

    func ended(_ session: ControlSession) { ended.withLock { $0 += 1 } }
}

private struct Answering: ControlHandler {
    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply { .done }
}

@Suite struct SessionServing {
    private func wait(_ client: SessionClient) throws -> SessionNews? {
        for _ in 0..<12_000 {
            if let news = try client.next() { return news }
            usleep(5_000)
        }
        return nil
    }

    @Test("Hundreds of control sessions leave room for commands")
    func hundredsOfSessionsTakeNoneOfTheConnectionsThatCommandsNeed() throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("grantfs-sessions-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let sessions = Sessions()
        let server = try ControlServer(directory: directory, name: "s.sock", handler: Answering(), sessions: sessions)
        defer { server.stop() }
        var clients = try (0..<300).map { _ in
            try SessionClient(socket: "s.sock", directory: directory, deadline: Clock.deadline(seconds: 60))
        }
        #expect(try ControlClient.send(.ping, to: "s.sock", in: directory, timeout: 60) == .done)
        for (number, client) in clients.enumerated() { try client.send(.endClaim(UInt64(number))) }
        for (number, client) in clients.enumerated() { #expect(try wait(client) == .refused(claim: UInt64(number), .ended, text: "")) }
        clients.removeLast(299)
        for _ in 0..<12_000 where sessions.ended.withLock({ $0 }) < 299 { usleep(5_000) }
        #expect(sessions.ended.withLock { $0 } == 299)
        server.stop()
        #expect(throws: ControlClient.Failure.hungUp) { try wait(clients[0]) }
    }

    @Test("A malformed message of a control session ends only that session")
    func nonsenseEndsTheSessionAndNoOther() throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("grantfs-sessions-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let server = try ControlServer(directory: directory, name: "s.sock", handler: Answering(), sessions: Sessions())
        defer { server.stop() }
        let good = try SessionClient(socket: "s.sock", directory: directory, deadline: Clock.deadline(seconds: 60))
        for bytes: [UInt8] in [[0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 0, 1, 9], [0, 0, 0, 2, 1, 99]] {
            let socket = try ControlClient.open("s.sock", in: directory, deadline: Clock.deadline(seconds: 60))
            _ = try ControlClient.ask(.session, over: socket, deadline: Clock.deadline(seconds: 60))
            try socket.send(bytes, deadline: Clock.deadline(seconds: 60))
            #expect(throws: Errno(ECONNRESET)) { try socket.receive(1, deadline: Clock.deadline(seconds: 60)) }
        }
        try good.send(.endClaim(1))
        #expect(try wait(good) == .refused(claim: 1, .ended, text: ""))
    }
}

@Suite struct WhatAnEventMeans {
    /// For a presenter of `/g/d`.
    private func telling(_ kind: SessionEvent.Kind, _ path: String, _ newPath: String? = nil) -> PresenterTelling? {
        let event = SessionEvent(
            number: 9, time: Instant(nanoseconds: 0), kind: kind, path: Array(path.utf8), newPath: newPath.map { Array($0.utf8) }, pid: 1)
        return PresenterTelling(event, to: 1, of: Array("/g/d".utf8))
    }

    private func news(_ kind: PresenterTelling.Kind, _ path: String = "/g/d", _ newPath: String? = nil) -> PresenterTelling {
        PresenterTelling(presenter: 1, event: 9, kind: kind, path: Array(path.utf8), newPath: newPath.map { Array($0.utf8) })
    }

    @Test("A presenter event depends on its place")
    func dependsOnWhereItWas() {
        for kind: SessionEvent.Kind in [.changed, .appeared, .removed] {
            for path in ["/g/d", "/g"] { #expect(telling(kind, path) == news(.changed)) }
            for path in ["/g/da", "/g/c", "/x"] { #expect(telling(kind, path) == nil) }
        }
        #expect(telling(.changed, "/g/d/a/b") == news(.subitemChanged, "/g/d/a/b"))
        #expect(telling(.appeared, "/g/d/a") == news(.subitemAppeared, "/g/d/a"))
        #expect(telling(.removed, "/g/d/a") == news(.subitemRemoved, "/g/d/a"))
        for kind: SessionEvent.Kind in [.claimWaits, .claimGranted, .claimEnded] { #expect(telling(kind, "/g/d") == nil) }
        #expect(telling(.revoked, "/g") == news(.released) && telling(.restored, "/g") == news(.restored))
        #expect(telling(.revoked, "/g/d/a") == nil)
    }

    @Test("A presenter event follows moves")
    func followsWhatIsMoved() {
        #expect(telling(.moved, "/g/d", "/g/e") == news(.moved, "/g/d", "/g/e"))
        #expect(telling(.moved, "/g", "/h/g") == news(.moved, "/g/d", "/h/g/d"))
        #expect(telling(.moved, "/g/d/a", "/g/d/b") == news(.subitemMoved, "/g/d/a", "/g/d/b"))
        #expect(telling(.moved, "/g/d/a", "/else") == news(.subitemMoved, "/g/d/a", "/else"))
        #expect(telling(.moved, "/else", "/g/d/a") == news(.subitemAppeared, "/g/d/a"))
        #expect(telling(.moved, "/else", "/g/d") == news(.changed))
        #expect(telling(.moved, "/else", "/g/e") == nil)
    }
}
