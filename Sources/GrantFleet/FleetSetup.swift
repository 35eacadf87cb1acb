import GrantModel
import GrantSystem

/// Creates a fleet, and adds and removes hosts: what needs etcd's user root.
public enum FleetSetup {
    /// Creates a fleet in the etcd of `settings`. If authentication is disabled there, etcd's user
    /// root gets a password and it is enabled. Otherwise `settings` must name a user with the role
    /// root. `keep` is called with the administrator's credentials before they are needed. It
    /// throws `.alreadyExists` if etcd has a fleet.
    public static func make(
        _ settings: EtcdSettings, lease: Int64, keep: (FleetCredentials) throws(GrantError) -> Void
    ) throws(GrantError) {
        let what = "no fleet is made"
        var settings = settings
        let open = try EtcdClient(
            EtcdSettings(
                endpoints: settings.endpoints, authorities: settings.authorities, certificate: settings.certificate, key: settings.key))
        let asks = try FleetStore.mapping(what) { () throws(EtcdFailure) in try open.asksForPassword() }
        if asks, settings.user == nil {
            throw GrantError(
                .permission, what, cause: "etcd asks for a password already", advice: "--user root --password-file FILE")
        }
        if !asks { (settings.user, settings.password) = ("root", settings.password ?? FleetCredentials.password()) }
        let client = asks ? try EtcdClient(settings) : open
        let format = FleetFormat(epoch: Clock.realtime, lease: lease)
        let found = try FleetStore.mapping(what) { () throws(EtcdFailure) in try client.read(FleetKeys.format) }
        if found.entry != nil {
            throw GrantError(.alreadyExists, what, cause: "etcd has one already", advice: "grantfs fleet status shows it")
        }
        try keep(FleetCredentials(settings: settings, host: nil))
        try FleetStore.mapping(what) { () throws(EtcdFailure) in
            try client.addRole(FleetRoles.administrator)
            try client.allow(FleetRoles.administrator, FleetKeys.root, writes: true)
            try allowReading(client, FleetRoles.audience("all"), FleetKeys.grants(for: "all"))
            if !asks {
                try client.setUser("root", password: settings.password ?? "")
                try client.addRole("root")
                try client.give("root", "root")
            }
            _ = try client.transaction(
                [.modified(FleetKeys.format, 0)], then: [.put(FleetKeys.format, format.json.text), FleetStore.signal([])])
            if !asks { try client.enablePasswords() }
        }
    }

    private static func allowReading(_ client: EtcdClient, _ role: String, _ key: String) throws(EtcdFailure) {
        try client.addRole(role)
        try client.allow(role, key)
    }

    /// Registers a host, or changes its labels, and returns credentials with a new password. The
    /// old one becomes invalid.
    public static func invite(
        _ host: String, _ labels: Labels, _ fleet: FleetStore, certificate: String?, key: String?
    ) throws(GrantError) -> FleetCredentials {
        guard Labels.isWord(host) else {
            throw GrantError(
                .usage, "invalid host id “\(host)”", advice: "use letters, digits, dots, dashes and underscores")
        }
        let client = fleet.client
        let (user, password) = (FleetRoles.host(host), FleetCredentials.password())
        let audiences = labels.audiences(of: host)
        try FleetStore.mapping("“\(host)” is not invited") { () throws(EtcdFailure) in
            try client.setUser(user, password: password)
            try allowReading(client, user, FleetKeys.format)
            try client.allow(user, FleetKeys.changeSignal)
            try client.allow(user, FleetKeys.registry(host))
            try client.allow(user, FleetKeys.host(host), writes: true)
            let had = try client.roles(of: user) ?? []
            if !had.contains(user) { try client.give(user, user) }
            let wanted = audiences.map { FleetRoles.audience($0) }
            for (role, audience) in zip(wanted, audiences) where !had.contains(role) {
                try allowReading(client, role, FleetKeys.grants(for: audience))
                try client.give(user, role)
            }
            // By its serial number the certificate is revoked when the host is taken out.
            let entry = JSONValue.object([
                "labels": .object(labels.values.mapValues { .string($0) }),
                "certificate": certificate.flatMap { ClientCertificate.serial($0) }.map { .string($0) } ?? .null,
            ])
            _ = try fleet.disarming { () throws(EtcdFailure) in
                try client.transaction(
                    then: [.put(FleetKeys.registry(host), entry.text), FleetStore.signal(["host=\(host)"])]
                        + fleet.logging("invited", ("host", .string(host))))
            }
            for role in had where role != user && !wanted.contains(role) { try client.take(user, role) }
        }
        var settings = client.settings
        (settings.user, settings.password, settings.certificate, settings.key) = (user, password, certificate, key)
        return FleetCredentials(settings: settings, host: host)
    }

    /// Makes an administrator who may grant and revoke, but neither invite nor change users.
    public static func inviteAdministrator(_ name: String, _ fleet: FleetStore, certificate: String?, key: String?) throws(GrantError)
        -> FleetCredentials
    {
        guard Labels.isWord(name), name != "root", !name.hasPrefix("grantfs-host-") else {
            throw GrantError(.usage, "invalid administrator name “\(name)”")
        }
        let password = FleetCredentials.password()
        try FleetStore.mapping("“\(name)” is not invited") { () throws(EtcdFailure) in
            try fleet.client.setUser(name, password: password)
            try fleet.client.give(name, FleetRoles.administrator)
        }
        var settings = fleet.client.settings
        (settings.user, settings.password, settings.certificate, settings.key) = (name, password, certificate, key)
        return FleetCredentials(settings: settings, host: nil)
    }

    /// Starts a new epoch after a backup of etcd was restored, which has lost revocations: revokes
    /// every grant. Without a new epoch the hosts refuse the fleet's state. Grants that are still
    /// wanted have to be restored by hand.
    public static func startNewEpoch(of fleet: FleetStore) throws(GrantError) {
        let active = try fleet.grants().grants
        _ = try fleet.change(active, "revoked") { grant in
            var grant = grant
            grant.state = .revoked
            // Above any activation that a host can have seen.
            grant.activation &+= 1_000_000
            return grant
        }
        var format = try fleet.format()
        format.epoch = max(format.epoch + 1, Clock.realtime)
        _ = try FleetStore.mapping("the fleet is not begun again") { () throws(EtcdFailure) in
            try fleet.disarming { () throws(EtcdFailure) in
                try fleet.client.transaction(then: [.put(FleetKeys.format, format.json.text), FleetStore.signal(["all"])])
            }
        }
    }

    /// Takes a host out of the fleet. Its credentials become invalid, so its agent cannot renew its
    /// lease. Revocations wait for the lease as long as it exists. Everything else that the host
    /// has written is deleted. It throws `.notFound`, or `.storeFull` if etcd's database is full.
    /// In the second case the credentials are invalid and the host's keys are deleted, except the
    /// key of its agent. Once there is room, the host must be taken out again.
    ///
    /// Returns the serial number of the host's certificate, which etcd accepts until it expires or
    /// the authority revokes it, or nil if the host had none.
    public static func remove(_ host: String, _ fleet: FleetStore) throws(GrantError) -> String? {
        guard Labels.isWord(host) else {
            throw GrantError(.notFound, "the fleet has no host “\(host)”", cause: "that is not a host id")
        }
        let client = fleet.client
        let seconds = try fleet.format().lease
        var certificate: String?
        let wasThere = try FleetStore.mapping("“\(host)” is not taken out wholly") { () throws(EtcdFailure) -> Bool in
            let had = try client.removeUser(FleetRoles.host(host))
            _ = try client.removeRole(FleetRoles.host(host))
            let entry = try client.read(FleetKeys.registry(host)).entry
            certificate = entry.flatMap { try? JSONValue(text: $0.value) }?["certificate"]?.string
            let isKnown = had || entry != nil
            do throws(EtcdFailure) {
                try fleet.disarming { () throws(EtcdFailure) in
                    try expire(host, within: seconds, fleet)
                    _ = try client.transaction(
                        then: [.delete(FleetKeys.registry(host)), FleetStore.signal(["host=\(host)"])]
                            + (isKnown ? fleet.logging("taken out", ("host", .string(host))) : []))
                }
            } catch {
                // The host itself may have filled it. It stays known until this has been done
                // again, so that it does not count as gone.
                if error == .full { _ = try client.transaction(then: deletions(of: host)) }
                throw error
            }
            return isKnown
        }
        if !wasThere { throw GrantError(.notFound, "the fleet has no host “\(host)”", advice: "grantfs fleet hosts lists them") }
        return certificate
    }

    /// Deletes the keys of a host that was taken out, except the key of its agent. That key gets a
    /// lease of the administrator's and ends with it: the host may have given it one that lasts for
    /// ever, or none. The agent cannot renew its effective lease, which is its user's, so it is
    /// fenced by then. etcd lets every client keep that lease, too: administrators depend on the
    /// host's silence.
    private static func expire(_ host: String, within seconds: Int64, _ fleet: FleetStore) throws(EtcdFailure) {
        let (client, agent) = (fleet.client, FleetKeys.agent(host))
        // The lease that the agent had may end meanwhile. No other client can change anything: the
        // host's user is gone.
        for _ in 0..<3 {
            let entry = try client.read(agent).entry
            var operations = deletions(of: host)
            if let entry {
                let lease = Int64(bitPattern: GrantID.random().low >> 1)
                _ = try client.grantLease(lease, seconds: seconds)
                operations += [.put(agent, entry.value, lease: lease), .put(FleetKeys.alive(host), entry.value, lease: lease)]
            } else {
                operations.append(.delete(FleetKeys.alive(host)))
            }
            let answer = try client.transaction([.modified(agent, entry?.modified ?? 0)], then: operations)
            guard answer.succeeded else { continue }
            if entry != nil, var silence = fleet.silence() {
                silence.see(host, HostMarks(agent: answer.revision, alive: answer.revision))
                silence.write(to: fleet.silenceFile)
            }
            return
        }
    }

    /// Deletes what it has written but for the words that its agent is there and alive.
    private static func deletions(of host: String) -> [EtcdOperation] {
        let (prefix, agent, alive) = (FleetKeys.host(host), FleetKeys.agent(host), FleetKeys.alive(host))
        return [
            .deleteRange(prefix, agent), .deleteRange(agent + "\0", alive), .deleteRange(alive + "\0", EtcdClient.end(of: prefix)),
        ]
    }
}
