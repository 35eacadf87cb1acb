import Glibc
import GrantModel
import GrantStore
import GrantSystem

// Holders of what no daemon can take back are ended, where the owner wishes.
extension Remains {
    /// Ends the processes that hold something of the mount, and waits until they are gone, as well as those that they have started meanwhile.
    /// Returns those that were ended. Nobody is, when the mount's filesystem cannot be told from a later one.
    ///
    /// What a holder has can be of any grant of the mount: which, only its daemon knew.
    func endHolders(until deadline: Int64) -> [Holder] {
        guard isCertain else { return [] }
        var ended: [Int32: Holder] = [:]
        while true {
            let found = Holder.search(of: [device]).holders[device] ?? []
            let holders = found.filter { $0.pid != getpid() && Remains.mayHold($0, record) }
            if holders.isEmpty { break }
            for holder in holders where end(holder.pid) { ended[holder.pid] = holder }
            if Clock.monotonic >= deadline { break }
            usleep(2_000)
        }
        return ended.values.sorted { $0.pid < $1.pid }
    }

    /// Whether it holds something and was sent SIGKILL.
    private func end(_ pid: Int32) -> Bool {
        guard let process = try? ProcessHandle(pid) else { return false }
        // Looked at while the handle is open: if the process has not ended after that, no other one was looked at.
        let isHolder = Holder.search(by: pid, of: device).map { Remains.mayHold($0, record) } ?? false
        guard isHolder, !process.hasEnded else { return false }
        return (try? process.send(SIGKILL)) != nil
    }
}
