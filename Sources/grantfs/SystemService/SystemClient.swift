import GrantCommandLine
import GrantCommandSupport
import GrantControl
import Glibc
import GrantModel
import GrantSystem

/// A client of the service for root's store (`--system`), with the rights of the calling user.
enum SystemClient {
    /// Prints the service's answer. Returns its exit status.
    static func run(_ request: SystemRequest, verb: String, _ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("store") { throw GrantError(.usage, "--system is for root's store", advice: "leave --store out") }
        let answer = try ask(request)
        guard let document = JSONReader()?.read(answer), case .integer(let status)? = document.member("status") else {
            throw GrantError(.system, "the service of root's store said something else than an answer")
        }
        if let error = document.member("error")?.stringValue {
            Terminal.note(error)
            return Int32(clamping: status)
        }
        guard case .array(let grants)? = document.member("grants") else { return Int32(clamping: status) }
        if arguments.wantsJSON {
            try Terminal.print(JSON.array(grants).text)
            return Int32(clamping: status)
        }
        for grant in grants {
            let text = { (key: String) in Terminal.visible(grant.member(key)?.stringValue ?? "") }
            let path = text("path").isEmpty ? "" : ": \(text("path")), \(text("access")), \(text("state"))"
            try Terminal.print(
                (verb.isEmpty ? "" : verb + " ") + "\(text("name")) (\(text("id").prefix(12))) in view \(text("view"))\(path)")
        }
        if status == 3 { Terminal.note("that is recorded, and some mount has not confirmed it yet (--json says which)") }
        return Int32(clamping: status)
    }

    private static func ask(_ request: SystemRequest) throws(GrantError) -> [UInt8] {
        let failure = { (error: Errno) in
            GrantError(
                .system, "the service of root's store cannot be reached", cause: error.description,
                advice: "an administrator starts it: systemctl enable --now grantfs-system.socket")
        }
        do throws(Errno) {
            let directory = try FileDescriptor.open(SystemRequest.directory.utf8, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW)
            let socket = try UnixSocket.connect(directory: directory.number, name: SystemRequest.name)
            // Another process at that socket could answer anything.
            guard OwnDirectory.isAdministrator(try socket.peer().uid) else { throw Errno(EPERM) }
            let deadline = Clock.monotonic + Int64(request.timeoutMilliseconds) * 1_000_000 + 15_000_000_000
            try Frame.send(request.bytes, over: socket, deadline: deadline)
            return try Frame.receive(over: socket, deadline: deadline)
        } catch {
            throw failure(error)
        }
    }
}
