import GrantCommandLine
import GrantConfinement
import Glibc
import GrantModel
import GrantProxy
import GrantSystem

/// `grantfs proxy`: the process outside of a sandbox through which its program reaches permitted hosts.
///
/// Descriptor 3 is a socket on which the sandbox's first step sends the listening socket, which is
/// in the sandbox's network namespace. Descriptor 4 leads to the command: when that closes its end
/// or dies, this process prints the refusals and ends.
enum ProxyCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        signal(SIGPIPE, SIG_IGN)
        ProcessName.set("grantfs-proxy")
        _ = chdir("/")
        let rules = try arguments.operands.map { (word) throws(GrantError) in try HostRule(try ParsedArguments.text(word, "the host")) }
        do throws(Errno) {
            try Nobody.become()
            let sandbox = UnixSocket(connected: FileDescriptor(owning: 3))
            if try Poll.waitForEither(sandbox.number, 4) { return 0 }
            // None comes if the sandbox could not be made.
            guard let listener = try? sandbox.receive(descriptors: 1, deadline: Clock.monotonic + 10_000_000_000).first else { return 0 }
            let proxy = HostProxy(rules)
            try WorkerThread.start("proxy") {
                let listener = FileDescriptor(owning: listener)
                proxy.serve(listener)
            }.detach()
            try awaitCommand()
            report(proxy)
            return 0
        } catch {
            throw GrantError(.system, "the program reaches no host", cause: error.description)
        }
    }

    private static func awaitCommand() throws(Errno) {
        var set = PollSet()
        set.add(4)
        _ = try set.wait(until: nil)
    }

    /// Prints a line for each refusal, as `SandboxProxy` reads it.
    private static func report(_ proxy: HostProxy) {
        let (known, others) = proxy.refused
        let lines = known.map { "\($0.count) \($0.target) \($0.reason)\n" } + ["\(others)\n"]
        try? UnixSocket(connected: FileDescriptor(owning: 4)).send(Array(lines.joined().utf8), deadline: Clock.monotonic + 1_000_000_000)
    }
}
