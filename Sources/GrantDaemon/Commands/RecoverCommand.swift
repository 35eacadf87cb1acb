import Glibc
import GrantCommandLine
import GrantModel
import GrantStore

/// `grantfsd recover`: the daemon that a supervisor starts after the previous one has died. Descriptor 3 is a socket to the supervisor.
enum RecoverCommand {
    static let declaration = CommandDeclaration(
        "recover", "Goes on with the mount of a daemon that has died.",
        operands: [OperandDeclaration("ID")], options: [], isHidden: true)

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try arguments.openStore()
        guard fcntl(3, F_SETFD, FD_CLOEXEC) == 0, let id = GrantID(try ParsedArguments.text(arguments.operands[0], "the mount's id")),
            let record = try store.mounts().first(where: { $0.id == id })
        else { throw GrantError(.notFound, "there is no such mount") }
        DaemonStart.settle()
        DaemonStart.silence()
        return try Recovering.run(store: store, record: record, socket: 3)
    }
}
