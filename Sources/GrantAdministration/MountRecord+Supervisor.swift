import Glibc
import GrantModel
import GrantStore
import LinuxFS

// A daemon that dies may be followed by another one (`mount -o recover`). As long as its supervisor runs, the mount is not dead: the next daemon answers whoever asks at its socket.
extension MountRecord {
    /// Notes who has another daemon go on. Best effort: without it, who looks between two daemons takes the mount for dead.
    public static func note(supervisor pid: Int32, of id: GrantID, in directory: String) {
        guard let identity = ProcessIdentity(running: pid) else { return }
        let path = file(of: id, in: directory)
        let made = open(path + ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard made >= 0 else { return }
        let text = Array("\(identity.pid) \(identity.start) \(identity.bootID)\n".utf8)
        let isWhole = write(made, text, text.count) == text.count
        close(made)
        if !isWhole || rename(path + ".new", path) != 0 { unlink(path + ".new") }
    }

    public static func forgetSupervisor(of id: GrantID, in directory: String) { unlink(file(of: id, in: directory)) }

    /// Whether its daemon, should that be dead, is followed by another one just now.
    public func isSupervised(in directory: String) -> Bool {
        guard let text = try? File.contents(of: Array(MountRecord.file(of: id, in: directory).utf8)) else { return false }
        let words = String(decoding: text, as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard words.count == 3, let pid = Int32(words[0]), let start = UInt64(words[1]) else { return false }
        return ProcessIdentity(pid: pid, start: start, bootID: String(words[2])).isRunning
    }

    /// Whether its daemon runs, or another one will go on.
    public func isServed(in directory: String) -> Bool { process.isRunning || isSupervised(in: directory) }

    /// Whether its daemon serves nobody any more, and no other one will go on.
    public func isOver(in directory: String) -> Bool { process.isOver && !isSupervised(in: directory) }

    private static func file(of id: GrantID, in directory: String) -> String { "\(directory)/\(id).supervisor" }
}
