import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// Calls the plugin, as an engine does. A library for HTTP would be most of the hook, which starts with each container: one request is
/// sent on a connection that ends with the answer.
struct PluginClient {
    /// Absolute.
    let socket: [UInt8]

    private static let longestAnswer = 1 << 20
    private static let seconds = 120.0

    struct Answer {
        let members: JSON
        /// The process that listens.
        let process: Int32
    }

    /// Throws the plugin's error.
    @discardableResult
    func call(_ name: String, _ arguments: [(String, JSON)]) throws(GrantError) -> Answer {
        let body = Array(JSON.object(arguments).text.utf8)
        let head = "POST /VolumeDriver.\(name) HTTP/1.0\r\nContent-Length: \(body.count)\r\n\r\n"
        let (answer, process): ([UInt8], Int32)
        do throws(Errno) {
            (answer, process) = try exchange(Array(head.utf8) + body)
        } catch {
            throw GrantError(
                .system, "the plugin of volumes does not answer at \(VisibleText.of(socket))", cause: error.description,
                advice: "systemctl start grantfs-volumes.socket")
        }
        let separator = Array("\r\n\r\n".utf8)
        guard let end = answer.indices.first(where: { answer[$0...].starts(with: separator) }),
            let json = JSONReader()?.read(Array(answer[(end + separator.count)...])),
            case .string(let error) = json.member("Err")
        else { throw GrantError(.system, "the plugin of volumes cannot be understood", cause: VisibleText.of(Array(answer.prefix(100)))) }
        if error.isEmpty { return Answer(members: json, process: process) }
        throw GrantError(.mountFailed, error)
    }

    private func exchange(_ request: [UInt8]) throws(Errno) -> (answer: [UInt8], process: Int32) {
        let path = socket
        let deadline = Clock.deadline(seconds: PluginClient.seconds)
        let place = try FileDescriptor.open(CanonicalPath.parent(of: path), OpenFlags.path | O_DIRECTORY)
        let connection = try UnixSocket.connect(
            directory: place.number, name: String(decoding: CanonicalPath.lastName(of: path), as: UTF8.self))
        let peer = try connection.peer()
        guard peer.uid == 0 || peer.uid == geteuid() else { throw Errno(EPERM) }
        try connection.send(request, deadline: deadline)
        var answer: [UInt8] = []
        while answer.count <= PluginClient.longestAnswer {
            try Poll.wait(connection.number, writing: false, deadline: deadline)
            do throws(Errno) {
                answer += try connection.receiveSome(1 << 16) ?? []
            } catch {
                // The plugin has closed the connection after its answer.
                if error == Errno(ECONNRESET), !answer.isEmpty { return (answer, peer.pid) }
                throw error
            }
        }
        throw Errno(EMSGSIZE)
    }
}
