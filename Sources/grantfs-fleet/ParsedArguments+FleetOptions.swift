import GrantAdministration
import GrantCommandLine
import GrantFleet
import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension ParsedArguments {
    /// Throws `.usage` if one of these options was given, which do not apply to the fleet.
    func refuse(_ options: [String]) throws(GrantError) {
        for option in options where has(option) { throw GrantError(.usage, "\(command): --\(option) does not go with --fleet") }
    }

    /// Throws `.usage` if the service of root's store was named as well.
    func refuseSystem() throws(GrantError) {
        if has("system") { throw GrantError(.usage, "\(command): --system and --fleet do not go together") }
    }

    /// Opens the fleet as its administrator, with the credentials of $GRANTFS_FLEET or the store.
    /// `actor` is the user that makes the changes, for the log.
    ///
    /// `seconds`: how long etcd may take to answer everything that is asked.
    func openFleet(_ actor: Actor = .current(), within seconds: Double? = nil) throws(GrantError) -> FleetStore {
        let credentials = try administratorCredentials()
        let file = try administratorFile()
        let client = try EtcdClient(credentials.settings, tokenFile: file + ".token")
        // Recording a change takes some requests even without a wait for hosts.
        if let seconds { client.endRequests(at: Clock.monotonic + Int64(max(seconds, 2) * 1e9)) }
        return try FleetStore(client, actor: actor, silenceFile: file + ".silence") { Terminal.note($0) }
    }

    private func administratorFile() throws(GrantError) -> String {
        if let named = getenv("GRANTFS_FLEET"), named.pointee != 0 { return String(cString: named) }
        return FleetFiles.credentials(host: false, store: try storeDirectory())
    }

    func administratorCredentials() throws(GrantError) -> FleetCredentials {
        let file = try administratorFile()
        let credentials: FleetCredentials
        do throws(GrantError) {
            credentials = try FleetCredentials(file: file)
        } catch {
            guard error.code == .notFound else { throw error }
            throw GrantError(
                .notFound, "no fleet is administered from here", cause: "\(file) is not there",
                advice: "grantfs fleet init makes one, and $GRANTFS_FLEET names another file")
        }
        guard credentials.host == nil else {
            throw GrantError(.permission, "no fleet is administered from here", cause: "\(file) is a host's and not an administrator's")
        }
        return credentials
    }

    /// Returns the filesystem that `--filesystem` names. Throws `.usage` if it names none.
    func filesystem() throws(GrantError) -> FilesystemName? {
        guard let text = try text("filesystem") else { return nil }
        guard let name = FilesystemName(text) else {
            throw GrantError(
                .usage, "“\(text)” names no filesystem",
                cause: text.hasPrefix("/") ? "a device has another name on each host" : nil,
                advice: "UUID=… (lsblk -f says which), or the source of a network mount, server:/export (findmnt)")
        }
        return name
    }

    func selector() throws(GrantError) -> HostSelector { try HostSelector(try text("hosts") ?? "all") }
}
