import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension GrantStore {
    /// The mounts of the store that somebody serves. Throws what `mounts` does.
    ///
    /// An upgrade puts the next daemon on record before the one before it ends: what is found ended is looked up once more.
    func servedMounts() throws(GrantError) -> [MountRecord] {
        var ended: [ProcessIdentity] = []
        while true {
            let records = try mounts()
            let served = records.filter { $0.isServed(in: runDirectory) }
            let others = records.filter { record in !served.contains { $0.id == record.id } }.map(\.process)
            if others.isEmpty || others == ended { return served }
            ended = others
        }
    }
}

// A daemon that dies may be followed by another one (`mount -o recover`). As long as its supervisor runs, the mount is not dead: the next daemon answers whoever asks at its socket.
extension MountRecord {
    /// Notes who has another daemon go on, beside those who are noted and run: it is one of them that answers a death. Best effort: without it, who looks between two daemons takes the mount for dead.
    public static func note(supervisor pid: Int32, of id: GrantID, in directory: String) {
        guard let identity = ProcessIdentity(child: pid) else { return }
        let path = file(of: id, in: directory)
        let made = open(path + ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard made >= 0 else { return }
        let lines = supervisors(of: id, in: directory).filter { $0 != identity && $0.mayRun } + [identity]
        let text = Array(lines.map { "\($0.pid) \($0.start) \($0.bootID)\n" }.joined().utf8)
        let isWhole = write(made, text, text.count) == text.count
        close(made)
        if !isWhole || rename(path + ".new", path) != 0 { unlink(path + ".new") }
    }

    public static func forgetSupervisor(of id: GrantID, in directory: String) { unlink(file(of: id, in: directory)) }

    /// Whether its daemon, should that be dead, is followed by another one just now.
    public func isSupervised(in directory: String) -> Bool {
        var seen: [ProcessIdentity]
        var now = MountRecord.supervisors(of: id, in: directory)
        // One ends when the next daemon serves, which has noted its own before: what was read may be old when it is looked at.
        repeat {
            seen = now
            if seen.contains(where: \.mayRun) { return true }
            now = MountRecord.supervisors(of: id, in: directory)
        } while now != seen
        return false
    }

    /// Whether it was to be followed by another daemon, and may not have been.
    public func wasSupervised(in directory: String) -> Bool { access(MountRecord.file(of: id, in: directory), F_OK) == 0 }

    private static func supervisors(of id: GrantID, in directory: String) -> [ProcessIdentity] {
        guard let text = try? File.contents(of: Array(MountRecord.file(of: id, in: directory).utf8)) else { return [] }
        return String(decoding: text, as: UTF8.self).split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            guard words.count == 3, let pid = Int32(words[0]), let start = UInt64(words[1]) else { return nil }
            return ProcessIdentity(pid: pid, start: start, bootID: String(words[2]))
        }
    }

    /// Whether its daemon runs, or another one will go on; or it cannot be told, since nobody may take a live mount for dead because the machine is busy.
    public func isServed(in directory: String) -> Bool { process.mayRun || isSupervised(in: directory) }

    /// Whether its daemon serves nobody any more, and no other one will go on.
    public func isOver(in directory: String) -> Bool { process.isOver && !isSupervised(in: directory) }

    private static func file(of id: GrantID, in directory: String) -> String { "\(directory)/\(id).supervisor" }
}
