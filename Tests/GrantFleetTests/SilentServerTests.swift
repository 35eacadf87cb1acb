import Foundation
import Glibc
import GrantFleet
import TestSupport
import Testing

/// A proxy between a command and etcd. It drops all traffic after a given request or answer.
private final class EtcdRelay {
    enum Fault: String {
        /// After the answer to the first change, for some seconds.
        case afterTheCommit
        /// The answer to the first change, and all that follows.
        case withTheCommit
    }

    private static let code = """
        import socket, sys, threading, time
        server, port, fault, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
        lock, silent_until = threading.Lock(), [0.0]

        def silence():
            with lock:
                if not silent_until[0]:
                    silent_until[0] = time.monotonic() + seconds

        def wait():
            while time.monotonic() < silent_until[0]:
                time.sleep(0.02)

        def copy(source, target, is_request):
            try:
                while data := source.recv(1 << 20):
                    wait()
                    if is_request:
                        target.sendall(data)
                        if fault == 'withTheCommit' and b'request_put' in data:
                            silence()
                    else:
                        # What etcd says is held back, not lost.
                        time.sleep(0.01 if fault == 'withTheCommit' else 0)
                        wait()
                        target.sendall(data)
                        if fault == 'afterTheCommit' and b'response_put' in data:
                            silence()
            except OSError:
                pass
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        listener = socket.create_server(('127.0.0.1', port))
        print('ready', flush=True)
        while True:
            client, _ = listener.accept()
            etcd = socket.create_connection(('127.0.0.1', server))
            threading.Thread(target=copy, args=(client, etcd, True), daemon=True).start()
            threading.Thread(target=copy, args=(etcd, client, False), daemon=True).start()
        """

    private let child: Child

    /// The administrator's commands go through it from now on.
    init(_ fleet: FleetFixture, _ fault: Fault, seconds: Double) throws {
        let (socket, port) = try EtcdServers.listening(backlog: nil)
        close(socket)
        child = try Child(
            ["/usr/bin/python3", "-c", Self.code, "\(fleet.servers.members[0].client)", "\(port)", fault.rawValue, "\(seconds)"])
        try child.expect("ready")
        let file = fleet.store("administrator") + "/fleet/administrator.json"
        var credentials = try FleetCredentials(file: file)
        credentials.settings.endpoints = ["http://127.0.0.1:\(port)"]
        try credentials.write(to: file)
    }

    deinit { child.kill() }
}

extension GrantFleetTests {
    @Suite struct AServerThatFallsSilent {
        private func fleet() throws -> (fleet: FleetFixture, mount: String, id: String) {
            let fleet = try FleetFixture(hosts: ["h1"], lease: "60s")
            let mount = try fleet.mount("h1")
            let id = try fleet.administer("grant", "--fleet", try fleet.source(), "--view", "v", "--name", "x").orThrow().trimmed
            try fleet.awaitReading(mount + "/x/file", 0)
            return (fleet, mount, id)
        }

        @Test("A server silent after a recorded revocation is asked again until it answers")
        func forAWhile() throws {
            let (fleet, mount, _) = try fleet()
            let relay = try EtcdRelay(fleet, .afterTheCommit, seconds: 5)
            defer { withExtendedLifetime(relay) {} }
            let output = try fleet.administer("revoke", "--fleet", "x", "--timeout", "60", "--json").orThrow()
            #expect(try output.decoded(as: [FleetRevocation].self)[0].state("h1") == "confirmed", "\(output)")
            #expect(FleetFixture.reading(mount + "/x/file") == EACCES)
        }

        @Test(
            "A revocation is reported as recorded if etcd stays silent afterwards",
            arguments: [false, true])
        func forGood(isJSON: Bool) throws {
            let (fleet, mount, id) = try fleet()
            let relay = try EtcdRelay(fleet, .afterTheCommit, seconds: 10_000)
            defer { withExtendedLifetime(relay) {} }
            let words = ["revoke", "--fleet", "x", "--timeout", "1"] + (isJSON ? ["--json"] : [])
            let output = try fleet.run(words, store: "administrator")
            #expect(output.status == 3 && output.errors.contains("is recorded, but which hosts have applied it is not known"), "\(output)")
            if isJSON {
                let revoked = try output.decoded(as: [FleetRevocation].self)
                #expect(revoked.count == 1 && revoked[0].id == id && revoked[0].hosts.isEmpty, "\(output)")
            } else {
                #expect(output.text.contains("revoked x"), "\(output)")
            }
            try fleet.awaitReading(mount + "/x/file", EACCES)
        }

        @Test("A grant is reported as unknown if etcd is silent while it records it")
        func whileItRecords() throws {
            let (fleet, mount, _) = try fleet()
            let source = try fleet.source("y")
            var relay: EtcdRelay? = try EtcdRelay(fleet, .withTheCommit, seconds: 10_000)
            let output = try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "y")
            #expect(output.status == 1 && output.errors.contains("it is not known whether “y” is granted"), "\(output)")
            try fleet.awaitReading(mount + "/y/file", 0)
            relay = nil
            withExtendedLifetime(relay) {}
            let refused = try fleet.administer("grant", "--fleet", source, "--view", "v", "--name", "z")
            #expect(refused.status == 1 && !refused.errors.contains("not known whether"), "\(refused)")
        }
    }
}
