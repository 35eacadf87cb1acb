import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// Calls the plugin, as an engine does. A library for HTTP would be most of the hook, which starts with each container: one request is
/// sent on a connection that ends with the answer.
struct PluginClient {
    let socket: [UInt8]

    private static let longestAnswer = 1 << 20
    private static let seconds = 120.0

    /// Returns the answer's object. Throws the plugin's error.
    @discardableResult
    func call(_ name: String, _ arguments: [(String, JSON)]) throws(GrantError) -> JSON {
        let body = Array(JSON.object(arguments).text.utf8)
        let head = "POST /VolumeDriver.\(name) HTTP/1.0\r\nContent-Length: \(body.count)\r\n\r\n"
        let answer: [UInt8]
        do throws(Errno) {
            answer = try exchange(Array(head.utf8) + body)
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
        if error.isEmpty { return json }
        throw GrantError(.mountFailed, error)
    }

    private func exchange(_ request: [UInt8]) throws(Errno) -> [UInt8] {
        let path = CanonicalPath.absolute(socket)
        let deadline = Clock.deadline(seconds: PluginClient.seconds)
        let place = try FileDescriptor.open(CanonicalPath.parent(of: path), OpenFlags.path | O_DIRECTORY)
        let connection = try UnixSocket.connect(
            directory: place.number, name: String(decoding: CanonicalPath.lastName(of: path), as: UTF8.self))
        try connection.send(request, deadline: deadline)
        var answer: [UInt8] = []
        while answer.count <= PluginClient.longestAnswer {
            try Poll.wait(connection.number, writing: false, deadline: deadline)
            do throws(Errno) {
                answer += try connection.receiveSome(1 << 16) ?? []
            } catch {
                // The plugin has closed the connection after its answer.
                if error == Errno(ECONNRESET), !answer.isEmpty { return answer }
                throw error
            }
        }
        throw Errno(EMSGSIZE)
    }
}
