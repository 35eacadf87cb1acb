import GrantCommandSupport
import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// The grants of all users of this machine, for root.
struct MachineInventory {
    /// A store that may exist.
    struct Candidate: Hashable, Sendable {
        let uid: UInt32
        let directory: [UInt8]
        /// Whether a process has it open, so that it exists.
        var isOpen = false
    }

    /// A store that was read, or could not be.
    struct Found: Sendable {
        let uid: UInt32
        let directory: [UInt8]
        /// Why it could not be read, for people.
        let problem: String?
        let grants: [JSON]
        let mounts: [JSON]
    }

    /// The time-out for all stores of one user: nanoseconds.
    private static let timeout: Int64 = 10_000_000_000
    /// The time for the search for the stores that one user's processes have open.
    private static let searchTimeout: Int64 = 2_000_000_000
    /// How many stores of one user are read.
    private static let mostStores = 32
    /// How many users are read concurrently.
    private static let mostUsers = 16

    /// Returns every store: root's, those in users' homes, those of running daemons. Those of one user are read by one process of
    /// that user, which has no other's time.
    static func all() throws(GrantError) -> [Found] {
        guard let program = try? CanonicalPathOfProgram.path() else {
            throw GrantError(.system, "the program that looks at stores cannot be found", advice: "grantfs was replaced: try again")
        }
        var users: [(uid: UInt32, stores: [Candidate])] = []
        for candidate in candidates() {
            if let index = users.firstIndex(where: { $0.uid == candidate.uid }) {
                users[index].stores.append(candidate)
            } else {
                users.append((candidate.uid, [candidate]))
            }
        }
        var result: [Found] = []
        for start in stride(from: 0, to: users.count, by: mostUsers) {
            let found = inParallel(Array(users[start..<min(start + mostUsers, users.count)])) { look(at: $0.stores, of: $0.uid, program) }
            for found in found.joined()
            where !result.contains(where: { $0.directory == found.directory && $0.uid == found.uid }) {
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
        var spent: [UInt32: Int64] = [:]
        for name in (try? DirectoryNames.of("/proc".utf8)) ?? [] {
            guard let pid = Int32(String(decoding: name, as: UTF8.self)), File.line(of: "/proc/\(pid)/comm") == "grantfs",
                let uid = user(of: pid), spent[uid, default: 0] < searchTimeout
            else { continue }
            let start = Clock.monotonic
            defer { spent[uid, default: 0] += Clock.monotonic - start }
            for number in (try? DirectoryNames.of("/proc/\(pid)/fd".utf8)) ?? [] {
                var buffer = [UInt8](repeating: 0, count: 4096)
                let link = "/proc/\(pid)/fd/" + String(decoding: number, as: UTF8.self)
                let count = buffer.withUnsafeMutableBytes { readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
                if Clock.monotonic - start > searchTimeout { break }
                guard count > database.count, buffer[..<count].suffix(database.count).elementsEqual(database) else { continue }
                found.append(Candidate(uid: uid, directory: Array(buffer[..<(count - database.count)]), isOpen: true))
            }
        }
        return found
    }

    /// The real user of a process. The owner of its directory in /proc is root if it cannot be
    /// traced, even if another user runs it.
    private static func user(of pid: Int32) -> UInt32? {
        guard let status = try? File.contents(of: "/proc/\(pid)/status".utf8) else { return nil }
        let line = status.split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "Uid:".utf8) }
        return line?.split(separator: UInt8(ascii: "\t")).dropFirst().first.flatMap { UInt32(String(decoding: $0, as: UTF8.self)) }
    }

    /// Returns what each store has on record, or why it is not known. Nothing for stores that do not exist.
    private static func look(at candidates: [Candidate], of uid: UInt32, _ program: String) -> [Found] {
        var found: [Found] = []
        let fail = { (candidate: Candidate, problem: String) in
            found.append(Found(uid: uid, directory: candidate.directory, problem: problem, grants: [], mounts: []))
        }
        var asked: [(candidate: Candidate, path: String)] = []
        for candidate in candidates {
            if let path = String(validating: candidate.directory, as: UTF8.self) {
                asked.append((candidate, path))
            } else {
                fail(candidate, "its path is not UTF-8")
            }
        }
        if asked.count > mostStores {
            fail(asked[mostStores].candidate, "\(asked.count - mostStores) stores of this user are not looked at, this one among them")
            asked.removeLast(asked.count - mostStores)
        }
        let answers: InventoryAnswers
        do throws(Errno) {
            answers = try InventoryAnswers(of: asked.map(\.path), uid, program, timeout)
        } catch {
            for (candidate, _) in asked { fail(candidate, "it cannot be read: \(error)") }
            return found
        }
        for (index, (candidate, _)) in asked.enumerated() {
            switch answers.answer(index) {
            case .failure(let problem): fail(candidate, problem.text)
            case .success(let document):
                if let problem = document.member("problem")?.stringValue {
                    fail(candidate, problem)
                } else if let store = document.member("store")?.stringValue {
                    found.append(
                        Found(
                            uid: uid, directory: Array(store.utf8), problem: nil, grants: elements(document, "grants"),
                            mounts: elements(document, "mounts")))
                } else if candidate.isOpen {
                    fail(candidate, "a process has it open, and it cannot be seen from here")
                }
            }
        }
        return found
    }

    private static func elements(_ document: JSON, _ key: String) -> [JSON] {
        guard case .array(let elements)? = document.member(key) else { return [] }
        return elements
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
