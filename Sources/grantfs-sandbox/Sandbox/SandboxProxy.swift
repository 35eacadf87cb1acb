import Glibc
import GrantCommandLine
import GrantModel
import GrantProxy
import GrantSystem

/// The proxy of a sandbox with a list of hosts: an unprivileged process outside, which ends with this one.
final class SandboxProxy {
    private let child: Int32
    private let control: UnixSocket
    /// The socket to the proxy, for the first step in the sandbox.
    private var sandbox: Int32
    private var hasEnded = false

    /// Names of the sandbox's own loopback, which programs reach without the proxy. A name that is on the list means the machine's.
    let direct: [String]

    /// The environment variables with the proxy's address in the sandbox.
    static let variables = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]

    /// The result is nil if there is no list. Throws `.system` if it cannot be started.
    init?(_ hosts: [HostRule]) throws(GrantError) {
        if hosts.isEmpty { return nil }
        direct = ["localhost", "127.0.0.1", "::1"].filter { name in !hosts.contains { $0.host == name } }
        do throws(Errno) {
            let way = try UnixSocket.pair()
            let control = try UnixSocket.pair()
            let words = ["grantfs", "proxy", "--"] + hosts.map(\.text)
            child = try ChildProcess.spawn(
                "/proc/self/exe", arguments: words.map { Array($0.utf8) }, detached: true,
                descriptors: [way.other.number, control.other.number])
            sandbox = fcntl(way.own.number, F_DUPFD_CLOEXEC, 3)
            if sandbox < 0 { throw Errno(errno) }
            self.control = control.closeOther()
        } catch {
            throw GrantError(.system, "the proxy cannot be started", cause: error.description)
        }
    }

    /// Gives away the sandbox's end, once.
    func takeSandboxEnd() -> FileDescriptor {
        defer { sandbox = -1 }
        return FileDescriptor(owning: sandbox)
    }

    /// Ends the proxy, after the program. Returns the refusals, and the number of those beyond the limit.
    func end() -> (refused: [Refusal], others: Int) {
        hasEnded = true
        shutdown(control.number, Int32(SHUT_WR))
        var said: [UInt8] = []
        let deadline = Clock.monotonic + 2_000_000_000
        // The end of the connection is an error: by then everything has arrived.
        while said.count < 1 << 20, (try? Poll.wait(control.number, writing: false, deadline: deadline)) != nil {
            do throws(Errno) {
                said += try control.receiveSome(4096) ?? []
            } catch {
                break
            }
        }
        stop()
        return SandboxProxy.parse(said)
    }

    private static func parse(_ said: [UInt8]) -> (refused: [Refusal], others: Int) {
        var refused: [Refusal] = []
        var others = 0
        for line in String(decoding: said, as: UTF8.self).split(separator: "\n") {
            let parts = line.split(separator: " ", maxSplits: 2)
            guard let count = parts.first.flatMap({ Int($0) }) else { continue }
            if parts.count == 3 {
                refused.append(Refusal(target: String(parts[1]), reason: String(parts[2]), count: count))
            } else {
                others = count
            }
        }
        return (refused, others)
    }

    /// Prints what the program was refused. The program chooses the names, so only a few are printed.
    static func say(_ refused: [Refusal], _ others: Int) {
        let shown = refused.prefix(20)
        for refusal in shown {
            let times = refusal.count == 1 ? "" : " (\(refusal.count) times)"
            Terminal.note("the program was kept from \(Terminal.visible(refusal.target)): \(Terminal.visible(refusal.reason))\(times)")
        }
        let rest = refused.dropFirst(20).reduce(others) { $0 &+ $1.count }
        if rest > 0 { Terminal.note("and \(rest) times more") }
    }

    private func stop() {
        kill(child, SIGKILL)
        _ = try? ChildProcess.wait(child)
    }

    deinit {
        if sandbox >= 0 { close(sandbox) }
        if !hasEnded { stop() }
    }
}
