import GrantModel
import GrantSystem

// Users and roles, which only etcd's user root may change.
extension EtcdClient {
    /// Whether authentication is enabled. It sends a request without a password.
    public func asksForPassword() throws(EtcdFailure) -> Bool {
        do throws(EtcdFailure) {
            _ = try call("/v3/auth/authenticate", ["name": .string("-"), "password": .string("-")])
            return true
        } catch {
            switch error {
            case .isOpen: return false
            case .refusedLogin, .needsLogin: return true
            default: throw error
            }
        }
    }

    public func enablePasswords() throws(EtcdFailure) { _ = try call("/v3/auth/enable", [:]) }

    /// Adds a user, or changes the password of an existing one.
    public func setUser(_ name: String, password: String) throws(EtcdFailure) {
        do throws(EtcdFailure) {
            _ = try call("/v3/auth/user/add", ["name": .string(name), "password": .string(password)])
        } catch {
            guard error == .exists else { throw error }
            _ = try call("/v3/auth/user/changepw", ["name": .string(name), "password": .string(password)])
        }
    }

    /// Returns whether the user existed.
    public func removeUser(_ name: String) throws(EtcdFailure) -> Bool {
        try isThere { () throws(EtcdFailure) in _ = try call("/v3/auth/user/delete", ["name": .string(name)]) }
    }

    public func removeRole(_ name: String) throws(EtcdFailure) -> Bool {
        try isThere { () throws(EtcdFailure) in _ = try call("/v3/auth/role/delete", ["role": .string(name)]) }
    }

    /// Returns a user's roles, or nil if the user does not exist.
    public func roles(of user: String) throws(EtcdFailure) -> [String]? {
        var roles: [String]?
        _ = try isThere { () throws(EtcdFailure) in
            roles = (try call("/v3/auth/user/get", ["name": .string(user)])["roles"]?.items ?? []).compactMap(\.string)
        }
        return roles
    }

    public func addRole(_ name: String) throws(EtcdFailure) {
        do throws(EtcdFailure) {
            _ = try call("/v3/auth/role/add", ["name": .string(name)])
        } catch {
            if error != .exists { throw error }
        }
    }

    /// Allows a role to read, or read and write, a key, or all with a prefix, one that ends with a slash.
    public func allow(_ role: String, _ key: String, writes: Bool = false) throws(EtcdFailure) {
        var permission: [String: JSONValue] = [
            "permType": .string(writes ? "READWRITE" : "READ"), "key": EtcdClient.bytes(key),
        ]
        if key.hasSuffix("/") { permission["range_end"] = EtcdClient.bytes(EtcdClient.end(of: key)) }
        _ = try call("/v3/auth/role/grant", ["name": .string(role), "perm": .object(permission)])
    }

    public func give(_ user: String, _ role: String) throws(EtcdFailure) {
        _ = try call("/v3/auth/user/grant", ["user": .string(user), "role": .string(role)])
    }

    public func take(_ user: String, _ role: String) throws(EtcdFailure) {
        _ = try call("/v3/auth/user/revoke", ["name": .string(user), "role": .string(role)])
    }

    private func isThere(_ body: () throws(EtcdFailure) -> Void) throws(EtcdFailure) -> Bool {
        do throws(EtcdFailure) {
            try body()
            return true
        } catch {
            if case .other(let text) = error, text.contains(part: "not found") { return false }
            throw error
        }
    }

    /// The status of one member.
    public struct Member: Sendable {
        public let endpoint: String
        /// Why it does not answer.
        public let failure: EtcdFailure?
        public let version: String
        public let bytes: Int64
        public let isLeader: Bool
        /// The alarms that it reports, such as `NOSPACE` and `CORRUPT`.
        public let alarms: [String]
        public var isSound: Bool { failure == nil && alarms.isEmpty }
        public var isFull: Bool { alarms.contains("NOSPACE") }
    }

    private static let alarms = ["NOSPACE", "CORRUPT"]

    /// Asks each endpoint separately.
    public func members() throws(GrantError) -> [Member] {
        var result: [Member] = []
        for endpoint in settings.endpoints {
            var settings = settings
            settings.endpoints = [endpoint]
            let client = try EtcdClient(settings, timeout: timeout)
            do throws(EtcdFailure) {
                let answer = try client.call("/v3/maintenance/status", [:])
                let own = answer["header"]?["member_id"]?.string
                let errors = (answer["errors"]?.items ?? []).compactMap(\.string)
                result.append(
                    Member(
                        endpoint: endpoint, failure: nil, version: answer["version"]?.string ?? "?", bytes: answer["dbSize"]?.integer ?? 0,
                        isLeader: own != nil && answer["leader"]?.string == own,
                        alarms: Self.alarms.filter { name in errors.contains { $0.contains(part: name) } }))
            } catch {
                result.append(Member(endpoint: endpoint, failure: error, version: "", bytes: 0, isLeader: false, alarms: []))
            }
        }
        return result
    }
}
