import GrantCommandLine
import GrantFleet
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs agent`
enum AgentCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let store = try GrantStore(directory: try arguments.storeDirectory(), create: true)
        signal(SIGPIPE, SIG_IGN)
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        // Blocked before there are threads, so that none of them gets one.
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let agent = try FleetAgent(
            store: store, probe: .command, version: ProgramDeclaration.version,
            log: { level, text in SystemLog.write(level, "agent: " + Terminal.visible(text)) })
        SystemLog.open(isForeground: true)
        let waited = signals
        do throws(Errno) {
            try WorkerThread.start("fleet-signals") {
                var signals = waited
                while sigwaitinfo(&signals, nil) < 0, errno == EINTR {}
                agent.end()
            }.detach()
        } catch {
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
        try agent.run { ServiceManager.ready("the agent works") }
        return 0
    }
}
