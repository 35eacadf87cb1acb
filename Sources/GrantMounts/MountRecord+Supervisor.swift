import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension GrantStore {
    /// Returns the mounts of the store that have a running daemon. Throws what `mounts` does.
    ///
    /// An upgrade records the next daemon before the old one ends, so a mount that seems dead is looked up again.
    package func servedMounts() throws(GrantError) -> [MountRecord] {
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

// With `mount -o recover`, another daemon may follow one that dies. While its supervisor runs, the mount is not dead: the next daemon
// answers at its socket.
extension MountRecord {
    /// Records a supervisor beside the recorded ones that still run: one of them reacts to a death. Best effort: without the record, a
    /// mount between two daemons seems dead.
    public static func record(supervisor pid: Int32, of id: GrantID, in directory: String) {
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

    /// Whether another daemon follows if this one is dead.
    public func isSupervised(in directory: String) -> Bool {
        var seen: [ProcessIdentity]
        var now = MountRecord.supervisors(of: id, in: directory)
        // A supervisor ends when the next daemon serves, which has recorded its own supervisor
        // before. So this record may be outdated.
        repeat {
            seen = now
            if seen.contains(where: \.mayRun) { return true }
            now = MountRecord.supervisors(of: id, in: directory)
        } while now != seen
        return false
    }

    /// Whether another daemon was to follow, and may not have.
    public func wasSupervised(in directory: String) -> Bool { access(MountRecord.file(of: id, in: directory), F_OK) == 0 }

    private static func supervisors(of id: GrantID, in directory: String) -> [ProcessIdentity] {
        guard let text = try? File.contents(of: Array(MountRecord.file(of: id, in: directory).utf8)) else { return [] }
        return String(decoding: text, as: UTF8.self).split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            guard words.count == 3, let pid = Int32(words[0]), let start = UInt64(words[1]) else { return nil }
            return ProcessIdentity(pid: pid, start: start, bootID: String(words[2]))
        }
    }

    /// Whether its daemon runs or another will follow. It is true if that is unknown, since a live
    /// mount must not be taken for dead because the machine is busy.
    public func isServed(in directory: String) -> Bool { process.mayRun || isSupervised(in: directory) }

    /// Whether its daemon is defunct and no other will follow.
    public func isDefunct(in directory: String) -> Bool { process.isDefunct && !isSupervised(in: directory) }

    private static func file(of id: GrantID, in directory: String) -> String { "\(directory)/\(id).supervisor" }
}
