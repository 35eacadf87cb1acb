import Glibc
import GrantModel
import GrantSystem

/// The grants of all users of this machine, for root.
struct MachineInventory {
    /// A store that may exist.
    struct Candidate: Hashable, Sendable {
        let uid: UInt32
        let directory: [UInt8]
        /// Whether a process has it open; then it exists.
        var isOpen = false
    }

    /// A store that was read, or could not be.
    struct Found: Sendable {
        let uid: UInt32
        let directory: [UInt8]
        /// Why it could not be read; for people.
        let problem: String?
        let grants: [JSON]
        let mounts: [JSON]
    }

    /// The time-out for one store: nanoseconds.
    private static let timeout: Int64 = 10_000_000_000
    /// The maximum size of a store's answer.
    private static let maxBytes = 64 << 20

    /// Returns every store: root's, those in users' homes, those of running daemons. Each is read by a process of its owner.
    static func all() throws(GrantError) -> [Found] {
        guard let program = try? CanonicalPathOfProgram.path() else {
            throw GrantError(.system, "the program that looks at stores cannot be found", advice: "grantfs was replaced: try again")
        }
        var result: [Found] = []
        for candidate in candidates() {
            if let found = look(at: candidate, program), !result.contains(where: { $0.directory == found.directory && $0.uid == found.uid })
            {
                result.append(found)
            }
        }
        return result
    }

    private static func candidates() -> [Candidate] {
        var list = [Candidate(uid: 0, directory: Array("/var/lib/grantfs".utf8))]
        setpwent()
        defer { endpwent() }
        while let entry = getpwent() {
            let home = Array(String(cString: entry.pointee.pw_dir).utf8)
            // Users without a real home have no store, and each look costs a process.
            if home.first != UInt8(ascii: "/") || home == Array("/nonexistent".utf8) || home == [UInt8(ascii: "/")] { continue }
            let uid = entry.pointee.pw_uid
            list.append(Candidate(uid: uid, directory: home + Array("/.local/share/grantfs".utf8)))
        }
        // Open stores first, so that an unreadable one is reported.
        list = ofDaemons() + list
        var seen: Set<[UInt8]> = []
        return list.filter { seen.insert(Array("\($0.uid):".utf8) + $0.directory).inserted }
    }

    /// The stores that processes named `grantfs` have open, from /proc.
    private static func ofDaemons() -> [Candidate] {
        let database = Array("/grants.sqlite".utf8)
        var found: [Candidate] = []
        for name in (try? DirectoryNames.of("/proc".utf8)) ?? [] {
            guard let pid = Int32(String(decoding: name, as: UTF8.self)), File.line(of: "/proc/\(pid)/comm") == "grantfs" else { continue }
            var status = stat()
            guard stat("/proc/\(pid)", &status) == 0 else { continue }
            for number in (try? DirectoryNames.of("/proc/\(pid)/fd".utf8)) ?? [] {
                var buffer = [UInt8](repeating: 0, count: 4096)
                let link = "/proc/\(pid)/fd/" + String(decoding: number, as: UTF8.self)
                let count = buffer.withUnsafeMutableBytes { readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
                guard count > database.count, buffer[..<count].suffix(database.count).elementsEqual(database) else { continue }
                found.append(Candidate(uid: status.st_uid, directory: Array(buffer[..<(count - database.count)]), isOpen: true))
            }
        }
        return found
    }

    /// nil if there is no store.
    private static func look(at candidate: Candidate, _ program: String) -> Found? {
        let failure = { (problem: String) in
            Found(uid: candidate.uid, directory: candidate.directory, problem: problem, grants: [], mounts: [])
        }
        guard let text = String(validating: candidate.directory, as: UTF8.self) else { return failure("its path is not UTF-8") }
        let answer: [UInt8]
        do throws(Errno) {
            guard let given = try ask(program, ["inventory", "--store", text], as: candidate.uid) else {
                return failure("it cannot be looked at in time")
            }
            answer = given
        } catch {
            return failure("it cannot be looked at: \(error)")
        }
        guard let document = JSONReader()?.read(answer) else { return failure("what looked at it as its owner has ended") }
        if let problem = document.member("problem")?.stringValue { return failure(problem) }
        guard let store = document.member("store")?.stringValue else {
            return candidate.isOpen ? failure("a process has it open, and it cannot be seen from here") : nil
        }
        return Found(
            uid: candidate.uid, directory: Array(store.utf8), problem: nil, grants: elements(document, "grants"),
            mounts: elements(document, "mounts"))
    }

    private static func elements(_ document: JSON, _ key: String) -> [JSON] {
        guard case .array(let elements)? = document.member(key) else { return [] }
        return elements
    }

    /// Returns the program's output on descriptor 3; nil if it takes too long. The process inherits no terminal, session, environment
    /// or other descriptor from this one, because the user that it runs as could stop and trace it.
    private static func ask(_ program: String, _ words: [String], as uid: UInt32) throws(Errno) -> [UInt8]? {
        let pipe = try PipePair()
        var command = [program] + words
        if uid != 0 {
            // The uid alone counts; a user without an entry has only the group of the same number.
            let groups = getpwuid(uid).map { ["--regid=\($0.pointee.pw_gid)", "--init-groups"] } ?? ["--regid=\(uid)", "--clear-groups"]
            command =
                ["setpriv", "--reuid=\(uid)"] + groups + ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--reset-env", "--"]
                + command
        }
        let environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SWIFT_BACKTRACE=enable=no"].map { Array($0.utf8) }
        let pid = try ChildProcess.spawn(
            command[0], arguments: command.map { Array($0.utf8) }, environment: environment, detached: true, silent: true,
            descriptors: [pipe.writing.number])
        let reading = pipe.closeWriting()
        let answer = read(reading)
        // Its owner may have stopped it or changed what it does. If it hangs in a filesystem, it is abandoned.
        kill(pid, SIGKILL)
        for _ in 0..<500 {
            if (try? ChildProcess.hasEnded(pid)) != false {
                _ = try? ChildProcess.wait(pid)
                break
            }
            usleep(1000)
        }
        return answer
    }

    private static func read(_ pipe: borrowing FileDescriptor) -> [UInt8]? {
        let deadline = Clock.monotonic + timeout
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            guard (try? Poll.wait(pipe.number, writing: false, deadline: deadline)) != nil else { return nil }
            let count = Glibc.read(pipe.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { return nil }
            if count == 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > maxBytes { return nil }
        }
    }
}

/// The path of this program, for others who run it.
private enum CanonicalPathOfProgram {
    static func path() throws(Errno) -> String {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = buffer.withUnsafeMutableBytes {
            readlink("/proc/self/exe", $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
        }
        guard count > 0 else { throw Errno(errno) }
        let path = String(decoding: buffer.prefix(count), as: UTF8.self)
        guard access(path, X_OK) == 0 else { throw Errno(errno) }
        return path
    }
}
