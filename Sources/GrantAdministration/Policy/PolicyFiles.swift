import Glibc
import GrantFiles
import GrantModel
import GrantSystem

/// The policy files, in which the machine's administrator controls grants.
public enum PolicyFiles {
    public static let directory = "/etc/grantfs/policy.d"
    private static let ending = Array(".toml".utf8)
    /// The maximum size of a file.
    private static let largest = 1 << 20

    /// The person who has to act when the policy is wrong.
    static let mending = "root has to mend the policy: grantfs policy check"

    /// Reads the policy. Returns nil if there are no files. An unreadable policy permits nothing:
    /// it throws `.permission` if others than root can write a file or a directory on the path,
    /// `.invalidFile` with the line if it is invalid, or `.system`. Invalid tables that only allow
    /// something are omitted (`GrantPolicy.flaws`), so that one mistake of the administrator's does
    /// not stop every user.
    public static func read() throws(GrantError) -> GrantPolicy? {
        guard let opened = try open() else { return nil }
        var policy = GrantPolicy()
        for name in try names(in: opened) {
            let path = directory + "/" + String(decoding: name, as: UTF8.self)
            do throws(GrantError) {
                try policy.read(try contents(name, path, in: opened), file: path, leavesOut: true)
            } catch {
                throw GrantError(
                    error.code, error.message, cause: error.cause,
                    advice: [error.advice, mending].compactMap { $0 }.joined(separator: "; "))
            }
        }
        return policy.files.isEmpty ? nil : policy
    }

    /// Reads a file that is not installed yet, of any owner.
    public static func read(file: [UInt8]) throws(GrantError) -> GrantPolicy {
        let shown = String(decoding: file, as: UTF8.self)
        var policy = GrantPolicy()
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try read(try FileDescriptor.open(file, O_RDONLY | O_NONBLOCK), shown)
        } catch {
            throw unreadable(shown, error)
        }
        try policy.read(bytes, file: shown)
        return policy
    }

    /// Opens the directory name by name from the root, so that no component is a link or belongs to others.
    private static func open() throws(GrantError) -> FileDescriptor? {
        var path = ""
        var current = try root()
        for name in directory.split(separator: "/") {
            path += "/" + name
            do throws(Errno) {
                current = try FileDescriptor.openAt(current.number, name.utf8, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            } catch {
                if error == Errno(ENOENT) { return nil }
                if error == Errno(ENOTDIR) || error == Errno(ELOOP) { throw refused(path, "it is a link, or no directory") }
                throw unreadable(path, error)
            }
            try check(current, path)
        }
        return current
    }

    private static func root() throws(GrantError) -> FileDescriptor {
        do throws(Errno) {
            return try FileDescriptor.open("/".utf8, O_RDONLY | O_DIRECTORY)
        } catch {
            throw unreadable("/", error)
        }
    }

    private static func names(in directory: borrowing FileDescriptor) throws(GrantError) -> [[UInt8]] {
        let copy = dup(directory.number)
        guard copy >= 0 else { throw unreadable(PolicyFiles.directory, Errno(errno)) }
        guard let stream = fdopendir(copy) else {
            close(copy)
            throw unreadable(PolicyFiles.directory, Errno(errno))
        }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else { break }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name.count > ending.count, name.suffix(ending.count).elementsEqual(ending), name.first != UInt8(ascii: ".") {
                names.append(name)
            }
        }
        // A truncated list would leave rules out.
        if errno != 0 { throw unreadable(PolicyFiles.directory, Errno(errno)) }
        return names.sorted { $0.lexicographicallyPrecedes($1) }
    }

    private static func contents(_ name: [UInt8], _ path: String, in directory: borrowing FileDescriptor) throws(GrantError) -> [UInt8] {
        let number = directory.number
        let file: FileDescriptor
        do throws(Errno) {
            file = try FileDescriptor.openAt(number, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        } catch {
            if error == Errno(ELOOP) { throw refused(path, "it is a link") }
            throw unreadable(path, error)
        }
        try check(file, path)
        do throws(Errno) {
            return try read(file, path)
        } catch {
            throw unreadable(path, error)
        }
    }

    /// EFBIG if it is too large, EINVAL if it is not a regular file.
    private static func read(_ file: borrowing FileDescriptor, _ path: String) throws(Errno) -> [UInt8] {
        guard try file.status().st.st_mode & S_IFMT == S_IFREG else { throw Errno(EINVAL) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = Glibc.read(file.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Errno(errno) }
            if count == 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > largest { throw Errno(EFBIG) }
        }
    }

    private static func check(_ opened: borrowing FileDescriptor, _ path: String) throws(GrantError) {
        let status: FileStatus
        do throws(Errno) {
            status = try opened.status()
        } catch {
            throw unreadable(path, error)
        }
        guard OwnDirectory.isAdministrator(status.st.st_uid) else {
            throw refused(path, "it belongs to the user with id \(status.st.st_uid)", advice: "chown root it")
        }
        // An ACL gives no more than the group's bits show.
        if status.st.st_mode & 0o022 != 0 { throw refused(path, "others than root may write to it", advice: "chmod go-w it") }
    }

    private static func refused(_ path: String, _ cause: String, advice: String? = nil) -> GrantError {
        GrantError(.permission, "nothing is granted: the policy \(path) cannot be trusted", cause: cause, advice: advice)
    }

    private static func unreadable(_ path: String, _ error: Errno) -> GrantError {
        GrantError(.system, "nothing is granted: the policy \(path) cannot be read", cause: error.description)
    }
}
