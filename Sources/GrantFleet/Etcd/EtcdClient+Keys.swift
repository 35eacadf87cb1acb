import GrantModel

/// A key in etcd, with its value.
public struct EtcdEntry: Sendable, Equatable {
    public let key: String
    public let value: [UInt8]
    public let created: Int64
    public let modified: Int64
    /// 0: none.
    public let lease: Int64

    init?(_ json: JSONValue) {
        guard let key = json["key"]?.string.flatMap({ Base64.bytes($0) }) else { return nil }
        self.key = String(decoding: key, as: UTF8.self)
        value = json["value"]?.string.flatMap { Base64.bytes($0) } ?? []
        created = json["create_revision"]?.integer ?? 0
        modified = json["mod_revision"]?.integer ?? 0
        lease = json["lease"]?.integer ?? 0
    }
}

/// A condition of a transaction.
public enum EtcdCondition: Sendable {
    /// The key was not modified since this revision. 0 means that it does not exist.
    case modified(String, Int64)
    /// The key was created at this revision. 0 means that it does not exist.
    case created(String, Int64)
    case value(String, [UInt8])

    var json: JSONValue {
        switch self {
        case .modified(let key, let revision):
            .object([
                "key": EtcdClient.bytes(key), "target": .string("MOD"), "result": .string("EQUAL"), "mod_revision": .string("\(revision)"),
            ])
        case .created(let key, let revision):
            .object([
                "key": EtcdClient.bytes(key), "target": .string("CREATE"), "result": .string("EQUAL"),
                "create_revision": .string("\(revision)"),
            ])
        case .value(let key, let value):
            .object([
                "key": EtcdClient.bytes(key), "target": .string("VALUE"), "result": .string("EQUAL"), "value": .string(Base64.text(value)),
            ])
        }
    }
}

/// An operation of a transaction.
public enum EtcdOperation: Sendable {
    case put(String, [UInt8], lease: Int64 = 0)
    case delete(String)
    /// Deletes the keys from the first up to, but not including, the second.
    case deleteRange(String, String)
    case read(String)
    case readPrefix(String)

    var json: JSONValue {
        switch self {
        case .put(let key, let value, let lease):
            .object([
                "request_put": .object([
                    "key": EtcdClient.bytes(key), "value": .string(Base64.text(value)), "lease": .string("\(lease)"),
                ])
            ])
        case .delete(let key): .object(["request_delete_range": .object(["key": EtcdClient.bytes(key)])])
        case .deleteRange(let key, let end):
            .object(["request_delete_range": .object(["key": EtcdClient.bytes(key), "range_end": EtcdClient.bytes(end)])])
        case .read(let key): .object(["request_range": .object(["key": EtcdClient.bytes(key)])])
        case .readPrefix(let prefix):
            .object([
                "request_range": .object(["key": EtcdClient.bytes(prefix), "range_end": EtcdClient.bytes(EtcdClient.end(of: prefix))])
            ])
        }
    }
}

/// The result of a transaction.
public struct EtcdAnswer: Sendable {
    /// Whether the conditions held.
    public let succeeded: Bool
    /// The store's revision after it.
    public let revision: Int64
    /// The Raft term of the member that answered. In a later term, another member has become the leader.
    public let term: Int64
    /// The entries found, for each read of the executed branch, or empty for other operations.
    public let found: [[EtcdEntry]]
}

extension EtcdClient {
    static func bytes(_ key: String) -> JSONValue { .string(Base64.text(Array(key.utf8))) }

    /// Returns the end of the range of keys with this prefix.
    static func end(of prefix: String) -> String {
        var bytes = Array(prefix.utf8)
        // Prefixes end with a slash, so incrementing the last byte cannot overflow.
        bytes[bytes.count - 1] += 1
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Executes `then` atomically if all conditions hold, otherwise `otherwise`. Linearizable.
    public func transaction(
        _ conditions: [EtcdCondition] = [], then operations: [EtcdOperation], otherwise: [EtcdOperation] = []
    ) throws(EtcdFailure) -> EtcdAnswer {
        let answer = try call(
            "/v3/kv/txn",
            [
                "compare": .array(conditions.map(\.json)), "success": .array(operations.map(\.json)),
                "failure": .array(otherwise.map(\.json)),
            ])
        guard let revision = answer["header"]?["revision"]?.integer else {
            throw .invalidResponse(endpoint: settings.endpoints.joined(separator: ","), "its answer has no revision")
        }
        let found = (answer["responses"]?.items ?? []).map { response in
            (response["response_range"]?["kvs"]?.items ?? []).compactMap { EtcdEntry($0) }
        }
        return EtcdAnswer(
            succeeded: answer["succeeded"]?.isTrue ?? false, revision: revision, term: EtcdClient.term(answer["header"]), found: found)
    }

    /// Returns the entry of a key, or nil, and the store's revision.
    public func read(_ key: String) throws(EtcdFailure) -> (entry: EtcdEntry?, revision: Int64) {
        let answer = try transaction(then: [.read(key)])
        return (answer.found.first?.first, answer.revision)
    }

    /// Returns all keys with a prefix, sorted, as of one revision. With `first`, it returns only
    /// the keys from there on. If `withValues` is false, it omits the values, however large they
    /// are.
    public func list(_ prefix: String, from first: String? = nil, withValues: Bool = true) throws(EtcdFailure) -> (
        entries: [EtcdEntry], revision: Int64
    ) {
        var (entries, revision, start) = ([EtcdEntry](), Int64(0), first ?? prefix)
        while true {
            var body: [String: JSONValue] = [
                "key": EtcdClient.bytes(start), "range_end": EtcdClient.bytes(EtcdClient.end(of: prefix)), "limit": .string("2000"),
            ]
            if !withValues { body["keys_only"] = .bool(true) }
            if revision > 0 { body["revision"] = .string("\(revision)") }
            let answer = try call("/v3/kv/range", body)
            let part = (answer["kvs"]?.items ?? []).compactMap { EtcdEntry($0) }
            entries += part
            if revision == 0 { revision = answer["header"]?["revision"]?.integer ?? 0 }
            guard answer["more"]?.isTrue == true, let last = part.last else { return (entries, revision) }
            start = last.key + "\0"
        }
    }

    // MARK: leases

    /// Grants a lease with this id for so many seconds. Etcd may give more. An existing lease
    /// counts as ours, from an earlier try, and is renewed.
    public func grantLease(_ id: Int64, seconds: Int64) throws(EtcdFailure) -> Int64 {
        do throws(EtcdFailure) {
            return try call("/v3/lease/grant", ["ID": .string("\(id)"), "TTL": .string("\(seconds)")])["TTL"]?.integer ?? seconds
        } catch {
            if error == .exists { return try renewLease(id).seconds }
            throw error
        }
    }

    /// Renews a lease and returns its new duration in seconds. Throws `.noSuchLease` if it has
    /// expired.
    ///
    /// A leader answers this without asking the other members, even if it was just replaced and does not know (3.4.23). The result is
    /// valid if a later transaction is answered in the same `term`.
    public func renewLease(_ id: Int64) throws(EtcdFailure) -> (seconds: Int64, term: Int64) {
        let (seconds, term) = try keepLease(id)
        guard seconds > 0 else { throw .noSuchLease }
        return (seconds, term)
    }

    /// Returns a Raft term in which a leader was elected. What is written afterwards is never committed in an earlier term: a member
    /// takes the term it reports before it asks its leader.
    public func electedTerm() throws(EtcdFailure) -> Int64 {
        // No lease has the number 0. Renewing it succeeds without an effect.
        try keepLease(0).term
    }

    private func keepLease(_ id: Int64) throws(EtcdFailure) -> (seconds: Int64, term: Int64) {
        let answer = try call("/v3/lease/keepalive", ["ID": .string("\(id)")])
        return (answer["result"]?["TTL"]?.integer ?? 0, EtcdClient.term(answer["result"]?["header"]))
    }

    private static func term(_ header: JSONValue?) -> Int64 { header?["raft_term"]?.integer ?? 0 }

    public func revokeLease(_ id: Int64) throws(EtcdFailure) { _ = try call("/v3/lease/revoke", ["ID": .string("\(id)")]) }

    /// Returns the remaining seconds of a lease. Throws `.noSuchLease` if it has expired.
    public func timeLeft(ofLease id: Int64) throws(EtcdFailure) -> Int64 {
        // JSON omits a 0, which means that less than a second is left.
        let seconds = try call("/v3/lease/timetolive", ["ID": .string("\(id)")])["TTL"]?.integer ?? 0
        guard seconds >= 0 else { throw .noSuchLease }
        return seconds
    }

    // MARK: watches

    /// The changes of one or several revisions, in order.
    public struct Events: Sendable {
        public let revision: Int64
        public let puts: [EtcdEntry]
        /// The deleted keys.
        public let deletes: [String]
    }

    /// Watches a key, or all with a prefix (one that ends with a slash), from a revision on, until `each` or `goesOn` returns false, or
    /// the time is over. `.compacted` if that revision is gone: read everything again, and watch from there. After any other failure:
    /// watch again, from after the last event.
    public func watch(
        _ key: String, from revision: Int64, milliseconds: Int = 0, goesOn: @escaping () -> Bool = { true },
        each: @escaping (Events) -> Bool
    ) throws(EtcdFailure) {
        var create: [String: JSONValue] = ["key": EtcdClient.bytes(key), "start_revision": .string("\(revision)")]
        if key.hasSuffix("/") { create["range_end"] = EtcdClient.bytes(EtcdClient.end(of: key)) }
        var end: EtcdFailure?
        try stream("/v3/watch", ["create_request": .object(create)], milliseconds: milliseconds, goesOn: goesOn) { line in
            guard let result = line["result"] else { return true }
            if let oldest = result["compact_revision"]?.integer, oldest > 0 {
                end = .compacted(oldest)
                return false
            }
            if result["canceled"]?.isTrue == true {
                end = EtcdFailure(message: result["cancel_reason"]?.string ?? "the watch was cancelled", user: "")
                return false
            }
            let events = result["events"]?.items ?? []
            if events.isEmpty { return true }
            var (puts, deletes): ([EtcdEntry], [String]) = ([], [])
            for event in events {
                guard let entry = event["kv"].flatMap({ EtcdEntry($0) }) else { continue }
                if event["type"]?.string == "DELETE" { deletes.append(entry.key) } else { puts.append(entry) }
            }
            return each(Events(revision: result["header"]?["revision"]?.integer ?? 0, puts: puts, deletes: deletes))
        }
        if let end { throw end }
    }
}
