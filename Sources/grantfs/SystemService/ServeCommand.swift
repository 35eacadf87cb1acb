import GrantCommandLine
import GrantCommandSupport
import GrantControl
import Glibc
import GrantAdministration
import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs serve`: answers one request of a user on standard input, a connected socket, as root: `grantfs-system@.service`.
///
/// The kernel identifies the client (SO_PEERCRED), and the policy what that user may do. Nothing
/// that the client sends decides anything else.
enum ServeCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let socket = UnixSocket(connected: FileDescriptor(owning: STDIN_FILENO))
        let deadline = Clock.monotonic + 5_000_000_000
        do throws(Errno) {
            let peer = try socket.peer()
            let bytes = try Frame.receive(over: socket, deadline: deadline, most: SystemRequest.largest)
            let answer = answer(to: SystemRequest(bytes), from: peer, arguments)
            try Frame.send(Array(answer.text.utf8), over: socket, deadline: Clock.monotonic + 5_000_000_000)
            return 0
        } catch {
            throw GrantError(.system, "a request for root's store was not answered", cause: error.description)
        }
    }

    private static func answer(to request: SystemRequest?, from peer: (uid: UInt32, pid: Int32), _ arguments: ParsedArguments) -> JSON {
        do throws(GrantError) {
            guard let request else { throw GrantError(.usage, "the request makes no sense") }
            let policy = try PolicyFiles.read()
            let user = PolicyUser(uid: peer.uid)
            // For this user, only views in which the user may revoke exist.
            let administrator = GrantAdministrator(store: try arguments.openStore(), actor: Actor.peer(peer), probe: .command)
            let grants = try administrator.store.grants().filter { grant in
                (request.view == nil || grant.view == request.view) && user.mayRevoke(in: grant.view, by: policy)
            }
            switch request.kind {
            case .list:
                if grants.isEmpty, !user.mayRevokeAnything(by: policy) { throw refusal(user) }
                let now = Instant(nanoseconds: Clock.realtime)
                return .object([("status", .integer(0)), ("grants", .array(grants.map { .object(recorded($0, now)) }))])
            case .revoke, .restore:
                guard user.mayRevokeAnything(by: policy) else { throw refusal(user) }
                var chosen: [Grant] = []
                for bytes in request.selectors {
                    let grant = try Selector(bytes).select(from: grants, view: request.view)
                    if !chosen.contains(where: { $0.id == grant.id }) { chosen.append(grant) }
                }
                let timeout = Double(request.timeoutMilliseconds) / 1000
                let changes =
                    request.kind == .revoke
                    ? try administrator.revoke(chosen, timeout: timeout)
                    : try administrator.restore(chosen, timeout: timeout, onlyOwn: peer.uid != 0)
                return .object([
                    ("status", .integer(changes.areConfirmed ? 0 : 3)), ("grants", .array(changes.map { .object(JSON.change($0)) })),
                ])
            }
        } catch {
            if error.code == .permission { noteRefusal(of: request, to: Actor.peer(peer), error) }
            return .object([("status", .integer(Int64(error.exitStatus))), ("error", .string(error.description))])
        }
    }

    /// Writes to the system's log, like every refusal by the policy.
    private static func noteRefusal(of request: SystemRequest?, to actor: Actor, _ error: GrantError) {
        var fields: [SystemLog.Field] = [
            ("MESSAGE_ID", Array("a4a4c1c0f0f94c53a1f0f6c3d7f2b6e6".utf8)), ("GRANTFS_EVENT", Array("refused".utf8)),
            ("GRANTFS_UID", Array(String(actor.uid).utf8)), ("GRANTFS_PID", Array(String(actor.pid).utf8)),
            ("GRANTFS_PROGRAM", Array(actor.program.utf8)),
        ]
        if let view = request?.view { fields.append(("GRANTFS_VIEW", Array(view.description.utf8))) }
        if let login = actor.loginUID { fields.append(("GRANTFS_LOGIN_UID", Array(String(login).utf8))) }
        SystemLog.writeForCommand(
            .notice, "refused a request for root's store: \(VisibleText.of(error.description)), by \(actor.description)", fields)
    }

    private static func refusal(_ user: PolicyUser) -> GrantError {
        GrantError(
            .permission, "no [[revoke]] of the administrator's policy names \(user.name.map { "“\($0)”" } ?? "user \(user.uid)")",
            advice: "root's store is root's otherwise")
    }

    private static func recorded(_ grant: Grant, _ now: Instant) -> [(String, JSON)] {
        JSON.identity(grant) + JSON.members("path", grant.bookmark.path) + [
            ("access", .string(grant.access.rawValue)), ("state", .string(grant.state(at: now).rawValue)),
            ("expires", JSON.time(grant.expires)),
        ]
    }
}

extension Actor {
    /// Returns the process at the other end of a socket. Program and login uid come from /proc.
    fileprivate static func peer(_ peer: (uid: UInt32, pid: Int32)) -> Actor {
        let login = File.line(of: "/proc/\(peer.pid)/loginuid").flatMap { UInt32($0, radix: 10) }.flatMap { $0 == .max ? nil : $0 }
        return Actor(uid: peer.uid, pid: peer.pid, program: File.line(of: "/proc/\(peer.pid)/comm") ?? "", loginUID: login)
    }
}
