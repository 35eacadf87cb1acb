import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

extension FleetAgent {
    /// Takes this host out of its fleet. The fleet's grants are removed here. When all mounts have
    /// confirmed that, the lease is revoked, what the host has written to etcd is deleted, and the
    /// invitation removed. The rest is an administrator's to delete. Otherwise the invitation
    /// stays, and so does the lease until it expires. It throws `.alreadyExists` if an agent runs.
    public static func leave(_ store: GrantStore, probe: DirectoryProbe, timeout: Double) throws(GrantError) -> [GrantChange] {
        let place = store.directory + "/fleet/"
        guard access(place + "host.json", F_OK) == 0 else { throw GrantError(.notFound, "this host is in no fleet") }
        let lock: FileLock
        do throws(Errno) {
            lock = try FileLock.take(place + "agent.lock", create: true)
        } catch {
            throw GrantError(
                .alreadyExists, "this host does not leave the fleet",
                cause: error == Errno(EWOULDBLOCK) ? "its agent runs" : error.description,
                advice: "systemctl disable --now grantfs-agent")
        }
        _ = consume lock
        try FleetLease.write(0, in: store.runDirectory)
        let administrator = GrantAdministrator(store: store, probe: probe)
        // Including those that an agent has revoked: it may have ended before the mounts had confirmed.
        let own = try store.grants().filter { $0.fleetActivation != nil }
        let result = try store.reconcile([], by: administrator.actor)
        let changes = try administrator.confirm(
            result.changed + own.filter { grant in !result.changed.contains { $0.id == grant.id } }, timeout: timeout)
        guard changes.areConfirmed else { return changes }
        try store.remove(own.map(\.id), by: administrator.actor)
        _ = try administrator.confirm(own, timeout: timeout)
        if let credentials = try? FleetCredentials(file: place + "host.json"), let client = try? EtcdClient(credentials.settings) {
            let state = AgentState(file: place + "agent.json")
            // Best effort: it expires by itself.
            if state.lease != 0 { try? client.revokeLease(state.lease) }
            if let host = credentials.host { forgetKeys(of: host, client) }
        }
        unlink(AgentReport.path(in: store.runDirectory))
        for file in ["host.json", "agent.json"] { unlink(place + file) }
        return changes
    }

    /// Deletes the host's keys, unless another agent acts for the host: that agent may serve, and
    /// revocations wait for its key.
    private static func forgetKeys(of host: String, _ client: EtcdClient) {
        let prefix = FleetKeys.host(host)
        _ = try? client.transaction(
            [.modified(FleetKeys.agent(host), 0)], then: [.deleteRange(prefix, EtcdClient.end(of: prefix))])
    }
}
