import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs mcp`
enum MCPCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let word = try arguments.text("ask") ?? MCPAsking.Means.terminal.rawValue
        guard let means = MCPAsking.Means(rawValue: word) else {
            throw GrantError(
                .usage, "“\(word)” is unknown for --ask", advice: MCPAsking.Means.allCases.map(\.rawValue).joined(separator: ", "))
        }
        let policy = try arguments.bytes("policy").map { (path) throws(GrantError) in try MCPCommand.policy(path) } ?? RequestPolicy()
        let (rules, checkWritable) = try arguments.sandboxRules(after: policy.rules)
        // If the client is gone, write fails and the session ends in order.
        signal(SIGPIPE, SIG_IGN)
        let store = try GrantStore(directory: try arguments.storeDirectory(), create: true, survivesPowerLoss: false)
        TemporaryMount.sweep(store)
        let grants = try MCPGrants(store, obeyed: [arguments.bytes("policy")].compactMap { $0 }, policy, rules, checkWritable)
        do throws(GrantError) {
            try MCPServer(grants, policy, means).run()
        } catch {
            try? grants.end()
            throw error
        }
        try grants.end()
        return 0
    }

    private static func policy(_ path: [UInt8]) throws(GrantError) -> RequestPolicy {
        let shown = String(decoding: path, as: UTF8.self)
        let file: FileDescriptor
        do throws(Errno) {
            file = try FileDescriptor.open(path, O_RDONLY | O_NONBLOCK)
        } catch {
            throw GrantError(.system, "the policy \(shown) cannot be read", cause: error.description)
        }
        return try RequestPolicy(try SandboxProfiles.contents(of: file, shown), file: shown, home: SandboxProfiles.home)
            .mapped { CanonicalPath.resolveWhatExists($0) }
    }
}
