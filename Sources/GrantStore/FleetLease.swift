import Glibc
import GrantModel
import GrantSystem

/// The lease of the fleet's grants on this host: until when they may be used.
///
/// It is a small file in the store's directory `run`, which the agent writes and every daemon
/// reads. So daemons need no network. A daemon that is started, upgraded or recovered has the lease
/// immediately.
public enum FleetLease {
    static func path(in directory: String) -> String { directory + "/fleet-valid" }

    /// Returns the end of the lease by `BootClock`.
    ///
    /// Returns 0, which has passed, if there is no lease, it is from another boot, or it cannot be
    /// read.
    public static func read(in runDirectory: String) -> Int64 {
        guard let bytes = try? File.contents(of: Array(path(in: runDirectory).utf8)) else { return 0 }
        let words = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard words.count == 3, words[0] == Boot.id, let until = Int64(words[1], radix: 10), words[2] == "end" else { return 0 }
        return until
    }

    /// Renews the lease.
    ///
    /// - Throws: `.system` on failure. The old lease stays.
    public static func write(_ until: Int64, in runDirectory: String) throws(GrantError) {
        let (file, fresh) = (path(in: runDirectory), path(in: runDirectory) + ".new")
        let bytes = Array("\(Boot.id) \(until) end\n".utf8)
        do throws(Errno) {
            let descriptor = try FileDescriptor.open(fresh.utf8, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
            let count = Glibc.write(descriptor.number, bytes, bytes.count)
            if count != bytes.count { throw Errno(count < 0 ? errno : ENOSPC) }
            // It need not be durable: it is void after a reboot.
            if rename(fresh, file) != 0 { throw Errno(errno) }
        } catch {
            throw GrantError(.system, "\(file) cannot be written", cause: error.description)
        }
    }
}
