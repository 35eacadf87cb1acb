import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs fleet`
enum FleetCommand {
    static func leave(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        guard let operand = arguments.operands.first else { return try FleetMembership.leave(arguments) }
        let host = try ParsedArguments.text(operand, "the name of the host")
        let serial = try FleetSetup.remove(host, try arguments.openFleet())
        Terminal.note("“\(host)” is taken out: it shows what the fleet granted until its lease ends, and no longer")
        if let serial {
            Terminal.note(
                "etcd still accepts the host's certificate (serial number \(serial)): revoke it, as “Taking a host out” in "
                    + "docs/fleet.md describes")
        }
        return 0
    }

    static func make(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        if arguments.has("again") {
            try FleetSetup.startNewEpoch(of: try arguments.openFleet())
            Terminal.note("every grant of the fleet is withdrawn, and hosts go on (grantfs restore --fleet restores grants)")
            return 0
        }
        guard let endpoints = try arguments.text("endpoints") else {
            throw GrantError(.usage, "fleet init: --endpoints is missing", advice: "--endpoints https://HOST:2379,…")
        }
        let lease = try arguments.text("lease").map { text throws(GrantError) in try Expiry.seconds(text, for: "lease") } ?? 15
        guard lease >= 5, lease <= 3600 else {
            throw GrantError(.usage, "fleet init: a lease has 5 seconds at the least, an hour at the most")
        }
        var settings = EtcdSettings(
            endpoints: try EtcdSettings.endpoints(of: endpoints), authorities: try arguments.contents("ca"),
            certificate: try arguments.contents("cert"), key: try arguments.privateKey(), user: try arguments.text("user"))
        settings.password = try arguments.contents("password-file").map { String($0.prefix { $0 != "\n" }) }
        guard (settings.certificate == nil) == (settings.key == nil) else {
            throw GrantError(.usage, "fleet init: --cert and --key go together")
        }
        if let certificate = settings.certificate { try ClientCertificate.check(certificate) }
        if settings.user != nil, settings.password == nil { throw GrantError(.usage, "fleet init: --user needs --password-file") }
        let store = try GrantStore(directory: try arguments.storeDirectory(), create: true)
        let file = FleetFiles.credentials(host: false, store: store.directory)
        if let own = try? FleetCredentials(file: file), Set(own.settings.endpoints) == Set(settings.endpoints),
            let fleet = try? FleetStore(try EtcdClient(own.settings))
        {
            guard fleet.lease == Int64(lease) || !arguments.has("lease") else {
                throw GrantError(
                    .alreadyExists, "no fleet is made", cause: "this store administers the one there, whose leases last \(fleet.lease) s",
                    advice: "leave --lease out")
            }
            Terminal.note("this fleet exists already, and is administered from this store (grantfs fleet status shows it)")
            return 0
        }
        try FleetSetup.make(settings, lease: Int64(lease)) { credentials throws(GrantError) in
            try FleetMembership.makePlace(store)
            try credentials.write(to: file)
        }
        if settings.endpoints.contains(where: { $0.hasPrefix("http://") }) {
            Terminal.note("passwords and grants go over the network unencrypted: use https:// endpoints where others could listen")
        }
        Terminal.note(
            "the fleet is made, with the administrator's credentials in \(file) "
                + "(grantfs fleet invite HOST makes an invitation)")
        return 0
    }

    static func invite(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let name = try ParsedArguments.text(arguments.operands[0], "the name of the host")
        let labels = try Labels(words: try arguments.texts("label"))
        let output = try arguments.text("output") ?? "\(name).invitation"
        let (certificate, key) = (try arguments.contents("cert"), try arguments.privateKey())
        guard (certificate == nil) == (key == nil) else { throw GrantError(.usage, "fleet invite: --cert and --key go together") }
        if let certificate { try ClientCertificate.check(certificate) }
        let fleet = try arguments.openFleet()
        if fleet.client.settings.certificate != nil, certificate == nil {
            throw GrantError(
                .usage, "“\(name)” is not invited", cause: "etcd may want a certificate, and the administrator's is not for others",
                advice: "give the host's own with --cert and --key")
        }
        let credentials =
            try arguments.has("administrator")
            ? FleetSetup.inviteAdministrator(name, fleet, certificate: certificate, key: key)
            : FleetSetup.invite(name, labels, fleet, certificate: certificate, key: key)
        try credentials.write(to: output)
        Terminal.note(
            arguments.has("administrator")
                ? "\(output) is for “\(name)” alone: GRANTFS_FLEET=FILE grantfs …"
                : "\(output) is for the host “\(name)” alone: grantfs fleet join FILE there")
        return 0
    }
}

extension ParsedArguments {
    /// Returns the contents of the file that an option names, or nil without the option. Throws
    /// `.system`.
    func contents(_ option: String) throws(GrantError) -> String? {
        guard let file = bytes(option) else { return nil }
        do throws(Errno) {
            return String(decoding: try File.contents(of: file), as: UTF8.self)
        } catch {
            throw GrantError(.system, "\(String(decoding: file, as: UTF8.self)) cannot be read", cause: error.description)
        }
    }

    /// Returns the key in the file that `--key` names, or nil without the option. Throws
    /// `.permission` if others may read or change it, or `.system`.
    func privateKey() throws(GrantError) -> String? {
        guard let file = bytes("key") else { return nil }
        return String(decoding: try PrivateFile.key(file), as: UTF8.self)
    }
}
