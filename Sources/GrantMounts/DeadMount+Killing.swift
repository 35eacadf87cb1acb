import Glibc
import GrantModel
import GrantStore
import GrantSystem

// Kills the processes that hold what no daemon can withdraw any more, if the owner wants that.
extension DeadMount {
    /// Kills the processes that hold something of the mount, and those they start meanwhile, and waits for their end. Returns them.
    /// Kills none if the mount's filesystem cannot be distinguished from a later one.
    ///
    /// A holder may hold something of any grant of the mount: only its daemon knew of which.
    func endHolders(until deadline: Int64) -> [Holder] {
        guard isCertain else { return [] }
        var ended: [Int32: Holder] = [:]
        while true {
            let found = Holder.search(of: [device], until: deadline).holders[device] ?? []
            let holders = found.filter { $0.pid != getpid() && DeadMount.mayHold($0, record) }
            if holders.isEmpty { break }
            for holder in holders where end(holder.pid, until: deadline) { ended[holder.pid] = holder }
            if Clock.monotonic >= deadline { break }
            usleep(2_000)
        }
        return ended.values.sorted { $0.pid < $1.pid }
    }

    /// Returns whether the process holds something and was sent SIGKILL.
    private func end(_ pid: Int32, until deadline: Int64) -> Bool {
        guard let process = try? ProcessHandle(pid) else { return false }
        // Inspected while a pidfd is open: if that process has not ended afterwards, no other one was inspected. Also if the search for all
        // holders has used up the time.
        let isHolder =
            Holder.search(by: pid, of: device, until: max(deadline, Clock.deadline(seconds: 1))).map { DeadMount.mayHold($0, record) }
            ?? false
        guard isHolder, !process.hasEnded else { return false }
        return (try? process.send(SIGKILL)) != nil
    }
}
