import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// A host joins a fleet, and leaves it.
enum FleetMembership {
    private static let unit = "grantfs-agent.service"

    static func makePlace(_ store: GrantStore) throws(GrantError) {
        let path = store.directory + "/fleet"
        if mkdir(path, 0o700) != 0, errno != EEXIST { throw GrantError(.system, "\(path) cannot be made", cause: Errno(errno).description) }
    }

    /// Checks the invitation before it is saved.
    static func join(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let file = try ParsedArguments.text(arguments.operands[0], "the name of the file")
        let credentials = try FleetCredentials(file: file)
        guard let host = credentials.host else {
            throw GrantError(.usage, "\(file) is an administrator's", advice: "name it with GRANTFS_FLEET instead")
        }
        let store = try GrantStore(directory: try arguments.storeDirectory(), create: true)
        let place = FleetFiles.credentials(host: true, store: store.directory)
        if let own = try? FleetCredentials(file: place), own.host != host {
            throw GrantError(
                .alreadyExists, "this host is in a fleet already, as “\(own.host ?? "")”", advice: "grantfs fleet leave takes it out")
        }
        let client = try EtcdClient(credentials.settings)
        // At boot etcd may start after this host, or elect a leader.
        client.endRequests(at: Clock.deadline(seconds: max(try arguments.timeout(), 2)), isPatient: true)
        _ = try FleetStore(client)
        try makePlace(store)
        try credentials.write(to: place)
        let isStarted = start(store)
        Terminal.note(
            "this host is “\(host)” in the fleet" + (isStarted ? ", and its agent works" : " (grantfs agent does what the fleet says)"))
        return 0
    }

    /// Starts the service, if the system's manager runs and the store is its own.
    private static func start(_ store: GrantStore) -> Bool {
        guard geteuid() == 0, store.directory == "/var/lib/grantfs", access("/run/systemd/system", F_OK) == 0,
            let program = ProgramSearch.path(of: "systemctl")
        else { return false }
        let words = ["systemctl", "enable", "--now", unit].map { Array($0.utf8) }
        guard let child = try? ChildProcess.spawn(.path(program), arguments: words), let status = try? ChildProcess.wait(child) else {
            return false
        }
        return status == 0
    }

    /// Removes the fleet's grants on this host, from every mount, and then revokes the lease: no
    /// revocation has to wait for this host any more.
    static func leave(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let store = try arguments.openStore()
        let changes = try FleetAgent.leave(store, probe: .command, timeout: timeout)
        let status = Confirmation.exitStatus(of: changes, "the end of the fleet's grants")
        if status == 0 {
            Terminal.note("this host is in no fleet any more (grantfs fleet leave HOST, by an administrator, forgets its password)")
        }
        return status
    }
}
