import Glibc
import GrantFiles
import GrantModel
import GrantSystem

/// A user as the policy sees one. Its data is from the machine's databases of users and groups,
/// never from a process's claims.
public struct PolicyUser: Sendable {
    public let uid: UInt32
    /// It is nil if no user has the uid.
    public let name: String?
    /// Canonical. It is nil if the home directory does not belong to the user, or is the root.
    let home: [UInt8]?
    private let groups: Set<gid_t>

    public init(uid: UInt32) {
        self.uid = uid
        var buffer = [CChar](repeating: 0, count: 65_536)
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        guard getpwuid_r(uid, &entry, &buffer, buffer.count, &found) == 0, let found else {
            (name, home, groups) = (nil, nil, [])
            return
        }
        let login = String(cString: found.pointee.pw_name)
        name = login
        home = PolicyUser.home(Array(String(cString: found.pointee.pw_dir).utf8), of: uid)
        groups = PolicyUser.groups(of: login, found.pointee.pw_gid)
    }

    /// The user with this name or uid. `.notFound`.
    public init(named text: String) throws(GrantError) {
        if let uid = PolicyUser.uid(of: text) ?? UInt32(text, radix: 10) {
            self.init(uid: uid)
            return
        }
        throw GrantError(.notFound, "there is no user “\(text)”")
    }

    /// Whether this user may revoke grants of the view in root's store. Root may always. Without a
    /// policy, no other user may.
    public func mayRevoke(in view: ViewName, by policy: GrantPolicy?) -> Bool {
        if uid == 0 { return true }
        return policy?.revokers.contains { rule in rule.names(view) && rule.who.contains { isMeant(by: $0) } } ?? false
    }

    /// Whether there is any view in which this user may revoke.
    public func mayRevokeAnything(by policy: GrantPolicy?) -> Bool {
        uid == 0 || policy?.revokers.contains { rule in rule.who.contains { isMeant(by: $0) } } ?? false
    }

    func isMeant(by subject: GrantPolicy.Subject) -> Bool {
        switch subject {
        case .everybody: true
        case .user(let name): name == self.name
        case .group(let name): PolicyUser.gid(of: name).map { groups.contains($0) } ?? false
        }
    }

    static func uid(of name: String) -> uid_t? {
        var buffer = [CChar](repeating: 0, count: 65_536)
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        guard getpwnam_r(name, &entry, &buffer, buffer.count, &found) == 0 else { return nil }
        return found?.pointee.pw_uid
    }

    static func gid(of name: String) -> gid_t? {
        var buffer = [CChar](repeating: 0, count: 1 << 20)
        var entry = Glibc.group()
        var found: UnsafeMutablePointer<Glibc.group>?
        guard getgrnam_r(name, &entry, &buffer, buffer.count, &found) == 0 else { return nil }
        return found?.pointee.gr_gid
    }

    private static func groups(of name: String, _ own: gid_t) -> Set<gid_t> {
        var count: Int32 = 64
        while true {
            var list = [gid_t](repeating: 0, count: Int(count))
            let room = count
            if getgrouplist(name, own, &list, &count) >= 0 { return Set(list.prefix(Int(count))) }
            // A second try with the same size would fail as well.
            if count <= room { return [own] }
        }
    }

    private static func home(_ path: [UInt8], of uid: uid_t) -> [UInt8]? {
        guard path.first == 0x2F, let canonical = try? CanonicalPath.resolve(path), canonical != [0x2F] else { return nil }
        var status = stat()
        guard withCString(canonical, { lstat($0, &status) }) == 0, status.st_mode & S_IFMT == S_IFDIR, status.st_uid == uid else {
            return nil
        }
        return canonical
    }
}
