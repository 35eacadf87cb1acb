import Glibc
import GrantModel
import GrantSystem

/// The state that an agent keeps over a restart: STORE/fleet/agent.json.
struct AgentState: Sendable, Equatable {
    /// The boot in which the lease was taken. A lease from another boot is void, because the time until which grants were valid is
    /// lost.
    var boot = Boot.id
    /// 0: none.
    var lease: Int64 = 0
    /// The Raft term in which the lease was taken, or 0 if that is unknown.
    var term: Int64 = 0
    /// Random: by this value the agent recognises its own key in etcd.
    var instance = GrantID.random().description
    /// The fleet's epoch, and the last revision seen. A fleet that is behind has lost revocations.
    var epoch: Int64 = 0
    var revision: Int64 = 0

    init() {}

    /// Reads the state. If it is missing or invalid, it starts with an empty state, which costs a
    /// wait for the old lease's end.
    init(file: String) {
        self.init()
        guard let bytes = try? File.contents(of: Array(file.utf8)), let json = try? JSONValue(text: bytes) else { return }
        epoch = json["epoch"]?.integer ?? 0
        revision = json["revision"]?.integer ?? 0
        guard json["boot"]?.string == boot, let instance = json["instance"]?.string, let lease = json["lease"]?.integer else { return }
        (self.instance, self.lease, term) = (instance, lease, json["term"]?.integer ?? 0)
    }

    func write(to file: String) throws(GrantError) {
        let json = JSONValue.object([
            "boot": .string(boot), "lease": .integer(lease), "term": .integer(term), "instance": .string(instance),
            "epoch": .integer(epoch), "revision": .integer(revision),
        ])
        try PrivateFile.write(json.text, to: file)
    }
}
