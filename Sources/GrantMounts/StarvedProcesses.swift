import Glibc
import GrantStore
import GrantSystem

/// Processes that keep a live mount from confirming a withdrawal, because they get no processor to process an answer.
enum StarvedProcesses {
    /// Kills those of the processes that a daemon has named which hold something of its mount, and waits for their end. Returns them.
    ///
    /// A process that holds nothing of the mount is left alone, even if the daemon reports it.
    static func kill(_ pids: [Int32], of record: MountRecord, until deadline: Int64) -> [Holder] {
        guard !pids.isEmpty, let device = record.connection?.device else { return [] }
        return Set(pids).subtracting([getpid(), record.pid]).sorted().compactMap { pid in
            guard let process = try? ProcessHandle(pid) else { return nil }
            // Inspected while a pidfd is open: if that process has not ended afterwards, no other one was inspected.
            guard let holder = Holder.search(by: pid, of: device, until: max(deadline, Clock.deadline(seconds: 1))), !process.hasEnded,
                (try? process.send(SIGKILL)) != nil
            else { return nil }
            _ = process.hasEnded(within: Int32(clamping: max(deadline - Clock.monotonic, 0) / 1_000_000))
            return holder
        }
    }
}
