import GrantCommandLine
import GrantModel
import GrantStore

/// `grantfsd take-over`: the daemon that `upgrade` starts for one mount.
enum TakeOverCommand {
    static let declaration = CommandDeclaration(
        "take-over", "Goes on with the mount of another daemon.",
        operands: [OperandDeclaration("ID")],
        options: [
            OptionDeclaration("ready-fd", value: "N", help: "where to say that the mount answers", isHidden: true),
            OptionDeclaration("foreground", help: "stay in the foreground", isHidden: true),
        ],
        isHidden: true)

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try arguments.openStore()
        guard let id = GrantID(try ParsedArguments.text(arguments.operands[0], "the mount's id")),
            let record = try store.mounts().first(where: { $0.id == id })
        else { throw GrantError(.notFound, "there is no such mount") }
        let descriptor = try arguments.text("ready-fd").flatMap { Int32($0) }
        DaemonStart.settle()
        return TakingOver.run(store: store, record: record) { result in
            switch result {
            case .success(let paused): if let descriptor { DaemonStart.announce(on: descriptor, Array(String(paused).utf8)) }
            case .failure(let error): Terminal.report(error)
            }
        }
    }
}
