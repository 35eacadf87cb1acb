import Foundation
import GrantModel
import GrantSystem
import TestSupport
import Testing

@testable import GrantControl

/// A directory of its own, removed at the end.
private final class Directory {
    let path: String
    private let top: String

    init(_ name: String = "") throws {
        top = NSTemporaryDirectory() + "/grantfs-control-\(UUID().uuidString)"
        path = name.isEmpty ? top : top + "/" + name
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: top) }
}

private struct Echo: ControlHandler {
    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply {
        switch request {
        case .apply(let grants, _), .shut(let grants, _), .release(let grants, _):
            .applied(grants.map { GrantOutcome(grant: $0, confirmed: true) })
        case .locate(let grants): .located(grants.map { GrantPlace(grant: $0, path: [0x2F]) })
        case .status: .failed("\(peer.uid) \(peer.pid)")
        case .ping, .unmount, .session, .metrics, .progress, .waits, .questions, .handOver: .done
        }
    }
}

/// Holds every request until it is released.
private final class Holding: ControlHandler {
    let gate = DispatchSemaphore(value: 0)

    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply {
        if request != .ping { gate.wait() }
        return .done
    }
}

@Suite struct ServerTests {
    @Test("The control server answers a request with 10,000 grants")
    func aRequestIsAnswered() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        let ids = (0..<10_000).map { _ in GrantID.random() }
        let reply = try ControlClient.send(
            .apply(grants: ids, timeoutMilliseconds: 1), to: "a.sock", in: directory.path, timeout: 60)
        #expect(reply == .applied(ids.map { GrantOutcome(grant: $0, confirmed: true) }))
    }

    @Test("The handler of the control server gets the caller's user ID and PID")
    func theHandlerLearnsWhoAsks() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        let reply = try ControlClient.send(.status, to: "a.sock", in: directory.path, timeout: 60)
        #expect(reply == .failed("\(geteuid()) \(getpid())"))
    }

    @Test("The control socket works in a directory with a long path")
    func aLongDirectoryServes() throws {
        let directory = try Directory(String(repeating: "x", count: 200))
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        #expect(try ControlClient.send(.ping, to: "a.sock", in: directory.path, timeout: 60) == .done)
    }

    @Test("The control socket and its directory are accessible only to the owner")
    func onlyItsUserMayUseTheSocket() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path + "/run", name: "a.sock", handler: Echo())
        defer { server.stop() }
        var status = stat()
        #expect(lstat(directory.path + "/run/a.sock", &status) == 0)
        #expect(status.st_mode & 0o777 == 0o600)
        #expect(lstat(directory.path + "/run", &status) == 0)
        #expect(status.st_mode & 0o777 == 0o700)
    }

    /// A process of another user, with every bit of the mode in its favour, is refused by its credentials.
    @Test("The control server refuses another user by the credentials", .enabled(if: geteuid() == 0, "only root can act as another user"))
    func anotherUserIsRefusedByCredentials() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        #expect(chmod(directory.path, 0o777) == 0 && chmod(directory.path + "/a.sock", 0o777) == 0)
        let script = """
            import os, socket, struct, sys
            os.setgid(65534); os.setuid(65534)
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(30)
            s.connect(sys.argv[1])
            try:
                s.sendall(struct.pack('>IBB', 2, 1, 3))
                print(len(s.recv(100)))
            except OSError:
                print(0)
            """
        let python = try Command.run(["python3", "-c", script, directory.path + "/a.sock"])
        try #require(python.status == 0, "python3 is missing or may not connect")
        #expect(python.text == "0\n")
    }

    @Test("The control server replaces a leftover file")
    func whatADeadDaemonLeftIsReplaced() throws {
        let directory = try Directory()
        #expect(FileManager.default.createFile(atPath: directory.path + "/a.sock", contents: nil))
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        #expect(try ControlClient.send(.ping, to: "a.sock", in: directory.path, timeout: 60) == .done)
    }

    @Test("A missing control server is reported as absent")
    func nobodyThereIsSaidAtOnce() throws {
        let directory = try Directory()
        #expect(throws: ControlClient.Failure.absent) {
            try ControlClient.ask(.ping, socket: "a.sock", directory: directory.path, deadline: Clock.deadline(seconds: 60))
        }
    }

    @Test("A stopped control server is absent")
    func afterStopNobodyAnswers() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        server.stop()
        server.stop()
        #expect(throws: ControlClient.Failure.absent) {
            try ControlClient.ask(.ping, socket: "a.sock", directory: directory.path, deadline: Clock.deadline(seconds: 60))
        }
    }

    @Test("A request to a hanging control handler times out while others are served")
    func aServerThatHangsIsLeftInTime() throws {
        let directory = try Directory()
        let handler = Holding()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: handler)
        defer { server.stop() }
        // A client that waits longer gets an answer in the end.
        let isLeft = DispatchSemaphore(value: 0)
        let answering = try WorkerThread.start("late") {
            _ = isLeft.wait(timeout: .now() + 30)
            handler.gate.signal()
        }
        #expect(throws: ControlClient.Failure.timedOut) {
            try ControlClient.ask(.status, socket: "a.sock", directory: directory.path, deadline: Clock.deadline(seconds: 0.2))
        }
        // The others are served meanwhile.
        #expect(try ControlClient.send(.ping, to: "a.sock", in: directory.path, timeout: 60) == .done)
        isLeft.signal()
        answering.join()
    }

    /// Like a stopped daemon: the kernel accepts the connection and no process reads. Once its
    /// queue is full, it accepts none.
    @Test("A request to a control server that never accepts times out")
    func aServerThatNeverAcceptsIsLeftInTime() throws {
        let directory = try Directory()
        let opened = try FileDescriptor.open(directory.path.utf8, OpenFlags.path | O_DIRECTORY)
        let listening = try UnixSocket.listen(directory: opened.number, name: "a.sock", backlog: 0)
        let waiting = try UnixSocket.connect(directory: opened.number, name: "a.sock")
        for _ in 0..<2 {
            #expect(throws: ControlClient.Failure.timedOut) {
                try ControlClient.ask(.ping, socket: "a.sock", directory: directory.path, deadline: Clock.deadline(seconds: 0.2))
            }
        }
        #expect(waiting.number != listening.number)
    }

    @Test("A malformed control request gets an error while others are served")
    func nonsenseIsAnsweredWithAnErrorAndNobodyElseSuffers() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        let opened = try FileDescriptor.open(directory.path.utf8, OpenFlags.path | O_DIRECTORY)
        let deadline = Clock.deadline(seconds: 60)

        let confused = try UnixSocket.connect(directory: opened.number, name: "a.sock")
        try Frame.send([1, 99], over: confused, deadline: deadline)
        guard case .failed = try ControlReply.decode(try Frame.receive(over: confused, deadline: deadline)) else {
            Issue.record("nonsense was taken for a request")
            return
        }
        let greedy = try UnixSocket.connect(directory: opened.number, name: "a.sock")
        try greedy.send([0xFF, 0xFF, 0xFF, 0xFF], deadline: deadline)
        #expect(throws: Errno.self) { try Frame.receive(over: greedy, deadline: deadline) }
        #expect(try ControlClient.send(.ping, to: "a.sock", in: directory.path, timeout: 60) == .done)
    }

    /// They also fill the socket's queue, so the time depends on how fast the server ends them, not
    /// on their timeout of 10 s.
    @Test("Incomplete control requests do not block others")
    func clientsThatSendHalfARequestKeepNobodyFromBeingAnswered() throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        let opened = try FileDescriptor.open(directory.path.utf8, OpenFlags.path | O_DIRECTORY)
        var silent: [SocketHolder] = []
        // Until the server's connections and the socket's queue are full of them.
        for _ in 0..<100 {
            guard let socket = try? UnixSocket.connect(directory: opened.number, name: "a.sock") else { break }
            try socket.send([0, 0, 0, 9, 1], deadline: Clock.deadline(seconds: 60))
            silent.append(SocketHolder(socket))
        }
        #expect(try ControlClient.send(.ping, to: "a.sock", in: directory.path, timeout: 8) == .done)
        #expect(silent.count >= 64)
    }

    private final class SocketHolder {
        let socket: UnixSocket
        init(_ socket: consuming UnixSocket) { self.socket = socket }
    }

    @Test("A hundred concurrent control requests are answered")
    func manyAskAtOnce() async throws {
        let directory = try Directory()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: Echo())
        defer { server.stop() }
        let path = directory.path
        let answered = Lock(0)
        let threads = try (0..<100).map { _ in
            try WorkerThread.start("asker") {
                if (try? ControlClient.send(.ping, to: "a.sock", in: path, timeout: 60)) == .done { answered.withLock { $0 += 1 } }
            }
        }
        for thread in threads { thread.join() }
        #expect(answered.withLock { $0 } == 100)
    }

    /// An `unmount` request calls `stop` within its own handler. Its answer still goes out.
    @Test("A control handler may stop its server")
    func stopMayBeCalledByAHandler() throws {
        final class Stopping: ControlHandler {
            let server = Lock<ControlServer?>(nil)
            func handle(_ request: ControlRequest, peer: Peer) -> ControlReply {
                server.withLock { $0 }?.stop()
                return .done
            }
        }
        let directory = try Directory()
        let handler = Stopping()
        let server = try ControlServer(directory: directory.path, name: "a.sock", handler: handler)
        handler.server.withLock { $0 = server }
        #expect(try ControlClient.send(.unmount, to: "a.sock", in: directory.path, timeout: 60) == .done)
        handler.server.withLock { $0 = nil }
    }
}
