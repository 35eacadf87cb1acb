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
            for pid in holders.map(\.pid) {
                if let holder = Holder.kill(pid, of: device, until: deadline, if: { DeadMount.mayHold($0, record) }) { ended[pid] = holder }
            }
            if Clock.monotonic >= deadline { break }
            usleep(2_000)
        }
        return ended.values.sorted { $0.pid < $1.pid }
    }
}

extension Holder {
    /// Kills a process if it still holds something on this device and `mayKill` agrees. Returns what it held, or nil if it was left alone.
    ///
    /// It is inspected while a pidfd is open: if that process has not ended afterwards, no other one was inspected. That is done even if a
    /// search for all holders has used up the time. With `waits` it returns after the end of the process, or at the deadline.
    static func kill(
        _ pid: Int32, of device: DeviceNumber, until deadline: Int64, waits: Bool = false, if mayKill: (Holder) -> Bool
    ) -> Holder? {
        guard let process = try? ProcessHandle(pid),
            let holder = search(by: pid, of: device, until: max(deadline, Clock.deadline(seconds: 1))), mayKill(holder),
            !process.hasEnded, (try? process.send(SIGKILL)) != nil
        else { return nil }
        if waits { _ = process.hasEnded(within: Int32(clamping: max(deadline - Clock.monotonic, 0) / 1_000_000)) }
        return holder
    }
}
