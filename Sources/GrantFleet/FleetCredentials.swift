import Glibc
import GrantModel
import GrantSystem

/// A file with the credentials for the fleet's etcd, passwords and keys included. Only its owner may read it.
public struct FleetCredentials: Sendable, Equatable {
    public var settings: EtcdSettings
    /// The host that the credentials belong to, or nil for an administrator's.
    public var host: String?

    public init(settings: EtcdSettings, host: String?) { (self.settings, self.host) = (settings, host) }

    /// Reads credentials from a file. Throws `.notFound`, `.permission` if others may read it, or
    /// `.invalidFile` if it is invalid.
    public init(file: String) throws(GrantError) {
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try PrivateFile.read(file)
        } catch {
            switch error.rawValue {
            case ENOENT: throw GrantError(.notFound, "\(file) is not there")
            case EPERM:
                throw GrantError(
                    .permission, "\(file) is not used", cause: "it is not this user's, or others may read it",
                    advice: "chown it, and chmod 600")
            default: throw GrantError(.system, "\(file) cannot be read", cause: error.description)
            }
        }
        let flaw = { (why: String) in GrantError(.invalidFile, "\(file) is not an invitation to a fleet", cause: why) }
        let json: JSONValue
        do throws(GrantError) {
            json = try JSONValue(text: bytes)
        } catch {
            throw flaw(error.cause ?? "it is not JSON")
        }
        guard json["grantfs-fleet"]?.integer == 1 else {
            throw flaw(json["grantfs-fleet"] == nil ? "it is something else" : "it is of a newer version")
        }
        guard let list = json["endpoints"]?.items, !list.isEmpty else { throw flaw("it names no endpoint") }
        let endpoints = try EtcdSettings.endpoints(of: list.compactMap(\.string).joined(separator: ","))
        settings = EtcdSettings(
            endpoints: endpoints, authorities: json["authorities"]?.string, certificate: json["certificate"]?.string,
            key: json["key"]?.string, user: json["user"]?.string, password: json["password"]?.string)
        host = json["host"]?.string
        if let host, !Labels.isWord(host) { throw flaw("invalid host id “\(host)”") }
    }

    /// Writes the file with mode 0600, replacing an existing one. `.system`.
    public func write(to file: String) throws(GrantError) {
        let text = { (text: String?) in text.map { JSONValue.string($0) } ?? .null }
        let json = JSONValue.object([
            "grantfs-fleet": .integer(1), "endpoints": .array(settings.endpoints.map { .string($0) }),
            "authorities": text(settings.authorities), "certificate": text(settings.certificate), "key": text(settings.key),
            "user": text(settings.user), "password": text(settings.password), "host": text(host),
        ])
        try PrivateFile.write(json.text + [0x0A], to: file)
    }

    /// Makes a password of 192 random bits.
    public static func password() -> String {
        let (one, two) = (GrantID.random(), GrantID.random())
        return one.description + two.description.prefix(16)
    }
}

/// Files of mode 0600 that are replaced atomically.
public enum PrivateFile {
    /// EPERM if it belongs neither to this user nor to root, or others may read it.
    public static func read(_ path: String) throws(Errno) -> [UInt8] {
        let descriptor = try FileDescriptor.open(path.utf8, O_RDONLY)
        var status = stat()
        guard fstat(descriptor.number, &status) == 0 else { throw Errno(errno) }
        guard status.st_mode & 0o077 == 0, status.st_uid == geteuid() || status.st_uid == 0 else { throw Errno(EPERM) }
        return try File.contents(of: Array("/proc/self/fd/\(descriptor.number)".utf8))
    }

    /// Returns the contents of a private key's file. It must be this user's or root's, and
    /// unreadable for others. A group may read it if it is root's, as with Debian's ssl-cert.
    /// Otherwise it throws `.permission` with advice. It throws `.system` if the file cannot be
    /// read.
    public static func key(_ path: [UInt8]) throws(GrantError) -> [UInt8] {
        let name = String(decoding: path, as: UTF8.self)
        var status = stat()
        do throws(Errno) {
            // The checked file is the one read, even if another takes its place meanwhile.
            let descriptor = try FileDescriptor.open(path, O_RDONLY)
            guard fstat(descriptor.number, &status) == 0 else { throw Errno(errno) }
            if keyFlaw(status) == nil { return try File.contents(of: Array("/proc/self/fd/\(descriptor.number)".utf8)) }
        } catch {
            throw GrantError(.system, "\(name) cannot be read", cause: error.description)
        }
        let (cause, advice) = keyFlaw(status) ?? ("it has changed", "try again")
        throw GrantError(.permission, "\(name) is not used", cause: cause, advice: advice)
    }

    private static func keyFlaw(_ status: stat) -> (cause: String, advice: String)? {
        let isRoots = status.st_uid == 0
        if !isRoots, status.st_uid != geteuid() {
            return ("it belongs to another user (\(status.st_uid)), who may read and replace it", "chown it to \(geteuid()), and chmod 600")
        }
        if status.st_mode & 0o007 != 0 { return ("every user of this machine may read or change it", "chmod 600 it") }
        if status.st_mode & (isRoots ? 0o030 : 0o070) != 0 {
            return ("the users of the group \(status.st_gid) may \(isRoots ? "change" : "read or change") it", "chmod 600 it")
        }
        return nil
    }

    /// `lasts`: waits until it is on disk.
    static func write(_ bytes: [UInt8], to path: String, lasts: Bool = true) throws(GrantError) {
        let fresh = "\(path).\(GrantID.random())"
        do throws(Errno) {
            do throws(Errno) {
                let file = try FileDescriptor.open(fresh.utf8, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
                var rest = bytes[...]
                while !rest.isEmpty {
                    let count = rest.withUnsafeBytes { Glibc.write(file.number, $0.baseAddress, $0.count) }
                    if count < 0, errno != EINTR { throw Errno(errno) }
                    rest = rest.dropFirst(max(0, count))
                }
                if lasts, fsync(file.number) != 0 { throw Errno(errno) }
                if rename(fresh, path) != 0 { throw Errno(errno) }
            } catch {
                unlink(fresh)
                throw error
            }
        } catch {
            throw GrantError(.system, "\(path) cannot be written", cause: error.description)
        }
    }

    /// Creates the store's directory for the fleet's files, mode 0700.
    static func makeDirectory(in store: String) throws(GrantError) -> String {
        let path = store + "/fleet"
        if mkdir(path, 0o700) != 0, errno != EEXIST { throw GrantError(.system, "\(path) cannot be made", cause: Errno(errno).description) }
        return path
    }
}
