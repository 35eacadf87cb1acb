import GrantFleet
import Foundation
import Glibc
import TestSupport

/// A fleet on this machine: etcd, an administrator, and hosts, each with a store of its own.
final class FleetFixture {
    let files: MountFixture
    let servers: EtcdServers
    private var agents: [String: Child] = [:]
    /// What `init` and `invite` are given where etcd wants certificates.
    private var certificate: [String] = []

    init(
        hosts: [String] = ["h1", "h2"], members: Int = 1, lease: String = "6s", options: [String] = [],
        _ security: EtcdServers.Security = .plain
    ) throws {
        files = try MountFixture()
        servers = try EtcdServers(in: files.base, count: members, security, options: options)
        if security == .certificates {
            certificate = ["--cert", servers.directory + "/client.pem", "--key", servers.directory + "/client.key"]
        }
        let authority = certificate.isEmpty ? [] : ["--ca", servers.authority]
        try run(["fleet", "init", "--endpoints", servers.list, "--lease", lease] + authority + certificate, store: "administrator")
            .orThrow()
        for host in hosts {
            try invite(host, "role=build", "zone=\(host)")
            try startAgent(host)
        }
        try awaitLive(hosts)
    }

    deinit {
        for agent in agents.values { agent.kill() }
        files.finish()
    }

    func store(_ host: String) -> String { files.base + "/" + host }

    @discardableResult
    func administer(_ words: String...) throws -> Output { try run(words, store: "administrator") }

    @discardableResult
    func on(_ host: String, _ words: String...) throws -> Output { try run(words, store: host) }

    func run(_ words: [String], store name: String) throws -> Output {
        try Command.run([Programs.grantfs] + words, environment: ["GRANTFS_STORE": store(name)], within: 120)
    }

    /// Makes a host, which needs no agent yet.
    func invite(_ host: String, _ labels: String...) throws {
        let file = "\(files.base)/\(host).invitation"
        try run(["fleet", "invite", host, "--output", file] + certificate + labels.flatMap { ["--label", $0] }, store: "administrator")
            .orThrow()
        try on(host, "fleet", "join", file).orThrow()
    }

    /// What it says is in `said`.
    /// `prelude`: how it is started, the words before its own.
    func startAgent(_ host: String, environment: [String: String] = [:], prelude: [String] = []) throws {
        let words = prelude + ["sh", "-c", "exec \"$1\" agent --store \"$2\" 2>>\"$3\"", "sh", Programs.grantfs, store(host), log(host)]
        agents[host] = try Child(words, environment: environment)
    }

    private func log(_ host: String) -> String { store(host) + ".log" }
    /// What the agents of a host have said.
    func said(_ host: String) -> String { (try? String(contentsOfFile: log(host), encoding: .utf8)) ?? "" }

    func signalAgent(_ host: String, _ signal: Int32) { if let agent = agents[host] { _ = kill(agent.pid, signal) } }

    func killAgent(_ host: String) {
        agents[host]?.kill()
        agents[host] = nil
    }

    struct Host: Decodable {
        let host: String
        let state: String
        let revision: Int64
        let problems: [String: String]
    }

    func hosts() throws -> [Host] { try administer("fleet", "hosts", "--json").orThrow().decoded() }
    func host(_ id: String) throws -> Host? { try hosts().first { $0.host == id } }

    func awaitLive(_ hosts: [String]) throws {
        try files.wait(until: "the hosts have said how far they are", within: 60) {
            let live = try self.hosts()
            return hosts.allSatisfy { id in live.contains { $0.host == id && $0.state == "live" && $0.revision > 0 } }
        }
    }

    /// Mounts a view on a host.
    func mount(_ host: String, _ view: String = "v") throws -> String {
        let place = "\(files.base)/\(host)-\(view)"
        mkdir(place, 0o755)
        try on(host, "mount", "--new", view, place).orThrow()
        return place
    }

    /// A directory with a file, to be granted.
    func source(_ name: String = "x") throws -> String {
        let path = try files.source(name)
        try "hello".write(toFile: path + "/file", atomically: false, encoding: .utf8)
        return path
    }

    /// What opening and reading gives: 0, or the error's number.
    static func reading(_ path: String) -> Int32 {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        if descriptor < 0 { return errno }
        defer { close(descriptor) }
        return reading(descriptor)
    }

    static func reading(_ descriptor: Int32) -> Int32 {
        var byte: UInt8 = 0
        return pread(descriptor, &byte, 1, 0) < 0 ? errno : 0
    }

    func awaitReading(_ path: String, _ error: Int32) throws {
        try files.wait(until: "\(path) gives \(error)", within: 60) { Self.reading(path) == error }
    }
}

/// What a revocation prints.
struct FleetRevocation: Decodable {
    struct Host: Decodable {
        let host: String
        let state: String
        let milliseconds: Double
        let until: String?
        let reason: String?
    }
    let id: String
    let view: String
    let name: String
    let hosts: [Host]

    func state(_ host: String) -> String? { hosts.first { $0.host == host }?.state }
}
