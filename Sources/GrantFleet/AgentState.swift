import Glibc
import GrantModel
import GrantSystem

/// What an agent remembers when it is started anew: STORE/fleet/agent.json.
struct AgentState: Sendable, Equatable {
    /// The boot in which the lease was taken; another one's is worth nothing, because nobody knows until when grants were shown to be valid.
    var boot = Boot.id
    /// 0: none.
    var lease: Int64 = 0
    /// Random: by which word of its own it knows its key in etcd.
    var instance = GrantID.random().description
    /// Of the fleet, and how far it was seen: a fleet that is behind has forgotten withdrawals.
    var epoch: Int64 = 0
    var revision: Int64 = 0

    init() {}

    /// What is written there; something new when it is missing or makes no sense, which costs a wait for the old lease's end.
    init(file: String) {
        self.init()
        guard let bytes = try? File.contents(of: Array(file.utf8)), let json = try? JSONValue(text: bytes) else { return }
        epoch = json["epoch"]?.integer ?? 0
        revision = json["revision"]?.integer ?? 0
        guard json["boot"]?.string == boot, let instance = json["instance"]?.string, let lease = json["lease"]?.integer else { return }
        (self.instance, self.lease) = (instance, lease)
    }

    func write(to file: String) throws(GrantError) {
        let json = JSONValue.object([
            "boot": .string(boot), "lease": .integer(lease), "instance": .string(instance), "epoch": .integer(epoch),
            "revision": .integer(revision),
        ])
        try PrivateFile.write(json.text, to: file)
    }
}
